"""The picture of docs/architecture.md, drawn from the imports: `python docs/architecture.py` writes it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import networkx as nx  # torch brings it

ROOT = Path(__file__).resolve().parents[1]
PLACE = Path(__file__).with_name("architecture.svg")
ABOUT = {
    "florets": (0, "the public names"),
    "commands": (0, "the command line"),
    "api": (0, "functions and results in Python"),
    "papers": (0, "tables of papers, stored runs"),
    "studies": (1, "runs, sweeps, advice"),
    "deploy": (2, "start-up kits of real nodes"),
    "engines": (0, "where clients are computed"),
    "server_app": (0, "the ServerApp: a run and its records"),
    "reports": (0, "figures, pages, statistics"),
    "conf": (0, "keys, presets, checks"),
    "zoo": (2, "methods that papers compare with"),
    "strategies/*": (1, "one folder per method"),
    "strategies/shared": (1, "parts of several methods"),
    "strategies/layers": (2, "protections around every exchange"),
    "strategies/base": (1, "the machinery of a round"),
    "strategies": (1, "registry, settings, coverage"),
    "strategies/core": (0, "clustering, in NumPy and SciPy"),
    "client_app": (2, "the ClientApp"),
    "task": (1, "data, models, training, messages"),
}
"""Of each folder the column of the picture that it stands in, and what it is."""
UPWARD = {
    ("server_app", "studies"),
    ("strategies/base", "strategies/layers"),
    ("strategies/base", "strategies/shared"),
}
"""Imports that go up: Flower's entry point starts what a run asks for, advice among it; a run composes its layers."""
ASIDE = {"tests", "benchmarks"}
_WIDTH, _HEIGHT, _ROW, _COLUMN, _MARGIN, _LEFT = 236, 44, 78, 262, 12, 44

Arrow = tuple[str, str]


def _room(path: Path) -> str:
    """Return the folder of the picture that a file lies in."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "strategies":
        return parts[0]
    if parts[1] in ("base", "core", "layers", "shared"):
        return f"strategies/{parts[1]}"
    return (
        "strategies" if parts[1] in ("__init__.py", "coverage.py", "registry.py", "settings.py") else "strategies/*"
    )


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported when the code runs, and not for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from _imported(node)


def arrows() -> set[Arrow]:
    """Return which folder imports which: pairs of importer and imported."""
    files = [
        file
        for package in sorted(ROOT.glob("*/__init__.py"))
        if package.parent.name not in ASIDE
        for file in sorted(package.parent.rglob("*.py"))
    ]
    rooms: dict[str, str] = {}
    for file in files:
        name = file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        rooms[name if name.startswith("florets") else f"florets.{name}"] = _room(file)
    found = set()
    for file in files:
        for name in _imported(ast.parse(file.read_text(encoding="utf-8"))):
            while name and name not in rooms:
                name = name.rpartition(".")[0]
            if name and rooms[name] != _room(file):
                found.add((_room(file), rooms[name]))
    return found


def reduced(all_arrows: set[Arrow]) -> set[Arrow]:
    """Leave out the arrows that others imply."""
    return set(nx.transitive_reduction(nx.DiGraph(all_arrows)).edges)


def _levels(few: set[Arrow]) -> dict[str, int]:
    """Return the row of each folder, 0 at the bottom: below all that import it, above all that it imports."""
    rows = list(nx.topological_generations(nx.DiGraph(few).reverse()))
    found = {room: number for number, row in enumerate(rows) for room in row}
    for room in sorted(found, key=found.__getitem__, reverse=True):
        found[room] = min((found[start] - 1 for start, to in few if to == room), default=found[room])
    return found


def draw() -> str:
    """Return the picture as SVG."""
    found = arrows()
    few = reduced(found - UPWARD)
    levels = _levels(few)
    assert levels.keys() <= ABOUT.keys(), f"say in ABOUT what these are: {sorted(levels.keys() - ABOUT.keys())}"
    top, half = max(levels.values()), _HEIGHT // 2
    places = {(ABOUT[room][0], level): room for room, level in levels.items()}
    assert len(places) == len(levels), "two folders in one place: give one of them another column"

    def centre(room: str) -> tuple[int, int]:
        column, level = ABOUT[room][0], levels[room]
        return _LEFT + _WIDTH // 2 + _COLUMN * column, _MARGIN + half + _ROW * (top - level)

    def path(start: str, to: str) -> str:
        (x, y), (u, v) = centre(start), centre(to)
        between = range(levels[to] + 1, levels[start])
        if between and x != u and any((ABOUT[start][0], level) in places for level in between):
            return f"M{x + _WIDTH // 2},{y} H{u} V{v - half}"
        y = v - _ROW if between else y
        middle = (y + v) // 2
        head = f"M{x},{centre(start)[1] + half} V{y + half}" if between else f"M{x},{y + half}"
        return f"{head} C{x},{middle} {u},{middle} {u},{v - half}"

    width, height = 3 * _COLUMN + _LEFT, _ROW * top + _HEIGHT + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'text-anchor="middle">',
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    lines += [
        f'<path d="{path(start, to)}" fill="none" stroke="#666" marker-end="url(#tip)"/>' for start, to in sorted(few)
    ]
    for start, to in sorted(found & UPWARD):
        (x, y), (u, v) = centre(start), centre(to)
        # Around the left side of the left column, else around the right side.
        side = -_WIDTH // 2 if ABOUT[start][0] == 0 else _WIDTH // 2
        bend = x + side + (40 if side > 0 else -40)
        lines.append(
            f'<path d="M{x + side},{y} C{bend},{y} {bend},{v} {u + side},{v}" fill="none" stroke="#b33" '
            'stroke-dasharray="5 4" marker-end="url(#tip)"/>'
        )
    for room in sorted(levels):
        x, y = centre(room)
        lines += [
            f'<rect x="{x - _WIDTH // 2}" y="{y - half}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#e0f2f1" '
            'stroke="#00796b"/>',
            f'<text x="{x}" y="{y - 4}" font-size="14" font-weight="bold">{room}/</text>',
            f'<text x="{x}" y="{y + 13}" font-size="11" fill="#333">{ABOUT[room][1]}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PLACE.write_text(draw(), encoding="utf-8")
