"""Hooks of the site's build: pages from other folders, links, equations, what is written from code and data."""

import html
import importlib
import inspect
import json
import math
import os
import posixpath
import re
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import florets
from florets.commands.help import Row, keys_of_strategy, reference
from florets.commands.main import WORDS
from florets.conf.presets import choices
from florets.strategies import STRATEGIES, TITLES
from florets.strategies.registry import find_strategy

if TYPE_CHECKING:
    # With the extra `docs` alone.
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DATA: dict[str, Any] = json.loads(Path(__file__).with_name("pictures.json").read_text(encoding="utf-8"))
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb7744", "#777777")
"""Of groups and models: Paul Tol's bright scheme, which colour-blind readers tell apart on light and dark."""

_IN_SITE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "SECURITY.md": "security.md",
    "examples/baselines/README.md": "examples/baselines.md",
    "examples/own_strategy/README.md": "examples/own_strategy.md",
}
"""Pages outside docs/, and their places in the site; those in papers/ keep theirs."""

_written = set[tuple[str | None, ...]]()
"""The markers that pages had."""

_package = tempfile.TemporaryDirectory()
"""The package as an installed wheel has it, for mkdocstrings, which reads files and not imports."""


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Show mkdocstrings the package, before it looks for it."""
    package = Path(_package.name) / "florets"
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        for source in (ROOT / name).rglob("*.py"):
            place = package / source.relative_to(ROOT / name if name == "florets" else ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            # Folders without this file are no packages to it, and a name that leads to itself leads nowhere.
            (place.parent / "__init__.py").touch()
            text = source.read_text(encoding="utf-8").replace("from florets import strategies\n", "pass\n")
            place.write_text(text, encoding="utf-8")
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_package.name]
    return config


# Before the plugins.
on_config.mkdocs_priority = 100  # type: ignore[attr-defined]


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that lie outside docs/, and the pictures of those in papers/."""
    from mkdocs.structure.files import File

    places = {name: place for name, place in _IN_SITE.items() if (ROOT / name).exists()}
    places |= {f"papers/{page.name}": f"papers/{page.name}" for page in (ROOT / "papers").glob("*.md")}
    for name in [name for name in places if name.startswith("papers/")]:
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            path = f"papers/{picture}"
            places[path] = path
    for name, place in places.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Turn a page as a repository's host shows it into one of the site."""
    if page.file.src_uri == "papers/leaderboard.md":
        # Its tables need the width.
        page.meta["hide"] = ["toc"]
    parts = re.split(r"(?ms)^([ ]*```.*?^[ ]*```[ ]*$)", markdown)
    return "".join(_fence(part) if place % 2 else _prose(part, page, files) for place, part in enumerate(parts))


on_page_markdown.mkdocs_priority = 100  # type: ignore[attr-defined]


def _fence(block: str) -> str:
    """Keep the language of a block of code; a file's name becomes its title, what tests read goes."""
    first, rest = block.split("\n", 1)
    _, language, how = re.fullmatch(r"( *```)(\S*) ?(.*)", first).groups()  # type: ignore[union-attr]
    title = f' title="{how}"' if "." in how else ""
    return f"```{language}{title}\n{rest}"


def _prose(text: str, page: "Page", files: "Files") -> str:
    text = re.sub(r"<!-- (?:before|prints): .*? -->\n?", "", text)
    text = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    # A list may follow a line at once on the host, and two spaces nest it; here it takes an empty line, and four.
    text = re.sub(r"(?m)^(?![-*] |\s|\|)(.+)\n(?=- )", r"\1\n\n", text)
    text = re.sub(r"(?m)^ +(?=\S)", lambda found: found[0] * 2, text)
    # Pictures first, because one may be a link's text.
    for pattern in (r"(!)\[([^][]*)\]\(([^)\s]+)\)", r"((?<!!))\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)"):
        text = re.sub(pattern, lambda found: _link(found, page, files), text)
    return re.sub(r"<!-- (\w+)(?:: (\w+))? -->", _marker, text)


def _link(found: re.Match[str], page: "Page", files: "Files") -> str:
    """Lead a link to the page of the site, else to the file in the repository, else nowhere."""
    picture, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return found[0]
    own = {place: name for name, place in _IN_SITE.items()}.get(page.file.src_uri, page.file.src_uri)
    own = own if own in _IN_SITE or own.startswith("papers/") else f"docs/{own}"
    name = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
    place = _IN_SITE.get(name, name.removeprefix("docs/"))
    if name.startswith(("docs/", "papers/")) or name in _IN_SITE:
        if files.get_file_from_path(place) is None and (ROOT / name).exists() and not name.startswith("docs/"):
            return _in_repository(text, name)
        relative = os.path.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
        return f"{picture}[{text}]({relative}{'#' * bool(anchor)}{anchor})"
    if not (ROOT / name).exists():
        raise ValueError(f"{own}: {target} leads nowhere")
    return _in_repository(text, name)


def _in_repository(text: str, name: str) -> str:
    url = PROJECT["project"]["urls"]["Repository"]
    # A reserved name stands for the address until there is one.
    return text if url.endswith(".example") else f"[{text}]({url}/blob/main/{name})"


def _marker(found: re.Match[str]) -> str:
    written = _MARKERS.get(found[1])
    _written.add(found.groups())
    return found[0] if written is None else f"\n{written(found[2]) if found[2] else written()}\n"


def on_page_content(html: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Set equations as MathML, which browsers show by themselves."""
    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', lambda one: _equation(one[1], "inline"), html)
    html = re.sub(
        r'(?s)<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>',
        lambda one: f'<div class="equation">{_equation(one[1], "block")}</div>',
        html,
    )
    return html


def on_post_page(output: str, page: "Page", config: "MkDocsConfig") -> str:
    """Take the one script that the theme would fetch from elsewhere from docs/."""
    shim = os.path.relpath("iframe_worker.js", posixpath.dirname(page.file.src_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", shim)


def on_post_build(config: "MkDocsConfig") -> None:
    """Refuse a site without the picture, or the source, of a method."""
    if missing := {(kind, name) for kind in ("picture", "method") for name in STRATEGIES} - _written:
        raise ValueError(f"no page has: {', '.join(f'<!-- {kind}: {name} -->' for kind, name in sorted(missing))}")


def _equation(latex: str, display: str) -> str:
    from latex2mathml.converter import convert

    text = re.sub(r"\\([Bb]ig\b|!)", "", html.unescape(latex)).replace(r"\arg\min", r"\operatorname{argmin}")
    found = convert(text.strip(), display=display)
    if "\\" in found:
        raise ValueError(f"{latex}: latex2mathml does not know a command in it")
    return found


# What is written from the code


def _api() -> str:
    """Every public name, by what it is for."""
    groups: dict[str, list[str]] = {
        "Functions": [], "Results, and data of clients": [], "Strategies of your own": [], "Tasks of your own": [],
    }  # fmt: skip
    for name, home in florets._HOMES.items():
        value = getattr(florets, name)
        if home.startswith("api.") and not inspect.isclass(value):
            groups["Functions"].append(name)
        elif home.startswith(("api.", "conf.")):
            groups["Results, and data of clients"].append(name)
        elif home.startswith(("task.data", "task.partitions", "task.declared")) and name != "handler":
            groups["Tasks of your own"].append(name)
        else:
            groups["Strategies of your own"].append(name)
    return "\n\n".join(
        f"## {title}\n\n" + "\n\n".join(f"::: florets.{name}" for name in names) for title, names in groups.items()
    )


def _cell(text: str) -> str:
    """Return a text of the code as a cell of a table."""
    text = html.escape(" ".join(text.split()), quote=False).replace("|", "&#124;")
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", text)


def _table(rows: Sequence[Row]) -> str:
    heads = ["name", "meaning"]
    heads += ["default, other words"] * any(row.values is not None for row in rows)
    heads += ["strategies"] * any(row.owners for row in rows)
    lines = ["".join(f"<th>{head}</th>" for head in heads)]
    for row in rows:
        cells = [f"<code>{_cell(row.name)}</code>", _cell(row.text), _cell(row.values or ""), _cell(row.owners)]
        lines.append("".join(f"<td>{cell}</td>" for cell in cells[: len(heads)]))
    body = "\n".join(f"<tr>{line}</tr>" for line in lines[1:])
    return f"<table>\n<thead><tr>{lines[0]}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _configuration() -> str:
    return "\n\n".join(f"## {title}\n\n{_table(rows)}" for title, rows in reference())


def _commands() -> str:
    texts = {word: importlib.import_module(f"florets.commands.{word.replace('-', '_')}").HELP for word in WORDS}
    return "\n\n".join(f"## florets {word}\n\n```text\n{text}\n```" for word, text in texts.items())


def _method(name: str) -> str:
    """Where a method comes from, in what it deviates, and its settings."""
    module, _, class_name = find_strategy(name).path.partition(":")
    text = inspect.getdoc(getattr(importlib.import_module(module), class_name)) or ""
    told = re.split(r"\b(Source|Deviation): ", text)[1:]
    found: dict[str, list[str]] = {"Source": [], "Deviation": []}
    for kind, what in zip(told[::2], told[1::2], strict=True):
        found[kind].append(f"<li>{_cell(what)}</li>")
    assert found["Source"] or name in ("local", "oracle"), f"{name}: its docstring has no `Source:`"
    parts = [f"<summary>Source, deviations and settings of <code>strategy={name}</code></summary>"]
    for kind, items in found.items():
        if items:
            parts.append(f"<p><strong>{kind}{'s' * (len(items) > 1)}</strong></p>\n<ul>{''.join(items)}</ul>")
    if rows := keys_of_strategy(name):
        parts.append(f"<p><strong>Settings</strong></p>\n{_table(rows)}")
    presets = ", ".join(f"<code>{preset}</code>" for preset in choices("experiment") if preset.startswith(f"{name}/"))
    if presets:
        parts.append(f"<p><strong>Presets</strong>: {presets}</p>")
    return "<details>\n" + "\n".join(parts) + "\n</details>"


# Pictures


def _svg(width: float, height: float, label: str, shapes: Sequence[str], caption: str) -> str:
    return (
        f'<div><svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'aria-label="{html.escape(label)}">{"".join(shapes)}</svg><span>{caption}</span></div>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _rows_by_group(groups: Sequence[int], size: float) -> tuple[list[int], list[float]]:
    """Return the clients in the order of their groups, and the height at which each one's row begins."""
    order = sorted(range(len(groups)), key=lambda client: (groups[client], client))
    gaps = [groups[client] for client in order]
    return order, [place * size + 4 * len({*gaps[: place + 1]}) - 4 for place in range(len(order))]


def _matched(models: Sequence[str], groups: Sequence[int]) -> dict[str, str]:
    """Return a colour for each model: that of the group that most of its clients are of, as far as it is free."""
    last = models[-1]
    shares = sorted(
        ((sum(a == one and b == group for a, b in zip(last, groups, strict=True)), one, group)
         for one in {*last} - {"."} for group in {*groups}),
        key=lambda share: (-share[0], share[1:]),
    )  # fmt: skip
    found: dict[str, int] = {}
    for count, one, group in shares:
        if count and one not in found and group not in found.values():
            found[one] = group
    for one in sorted({*"".join(models)} - {".", *found}):
        found[one] = next(n for n in range(len(found) + len({*groups}) + 1) if n not in found.values())
    return {one: COLOURS[number % len(COLOURS)] for one, number in found.items()}


def _assignments(data: dict[str, Any]) -> str:
    models, groups = data["models"], data["groups"]
    order, tops = _rows_by_group(groups, 9)
    colours, width = _matched(models, groups), 200 / len(models)
    shapes = []
    for client, top in zip(order, tops, strict=True):
        row = "".join(one[client] for one in models)
        for run in re.finditer(r"(.)\1*", row):
            if run[1] != ".":
                shapes.append(
                    f'<rect x="{run.start() * width:.4g}" y="{top:.4g}" width="{len(run[0]) * width:.4g}" height="8" '
                    f'fill="{colours[run[1]]}"/>'
                )
    bottom = tops[-1] + 22
    shapes += [_text(0, bottom, "round 1"), _text(200, bottom, str(len(models)), "end")]
    caption = "Model of each client (row, by true group) in each round; a colour is a model"
    return _svg(200, bottom + 4, "Assignments over the rounds", shapes, caption)


_COMPARED = {
    "losses": "loss of each model (column) on each client (row); stronger is lower",
    "shares": "share of each model (column) in each client (row); stronger is larger",
    "distances": "distances between clients; stronger is nearer",
}


def _compared(data: dict[str, Any]) -> str:
    kind, rows, groups = data["kind"], data["rows"], data["groups"]
    if kind not in _COMPARED:
        (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*rows, strict=True))
        scale = 180 / (max(right - left, high - low) or 1)
        shapes = [
            f'<circle cx="{10 + (x - left) * scale:.4g}" cy="{10 + (high - y) * scale:.4g}" '
            f'r="{7 - 1.5 * (group % 4):g}" fill="{COLOURS[group % len(COLOURS)]}" fill-opacity="0.75"/>'
            for (x, y), group in zip(rows, groups, strict=True)
        ]
        caption = f"The clients' {kind} in round {data['round']}, two principal components, coloured by true group"
        return _svg(200, 20 + (high - low) * scale, "What clients are compared by", shapes, caption)
    order, tops = _rows_by_group(groups, 9)
    square = kind == "distances" or len(rows[0]) == len(rows)
    columns, lefts = (order, tops) if square else (list(range(len(rows[0]))), [n * 30.0 for n in range(len(rows[0]))])
    width = 8 if square else 28
    known = [value for row in rows for value in row if value is not None and value > 0] or [1]
    low, high = min(known), max(known)

    def dark(value: float | None) -> float:
        if kind == "shares":
            return value or 0
        if value is None or value <= 0:
            return float(kind == "distances")
        return 1 - math.log(value / low) / (math.log(high / low) or 1)

    shapes = [
        f'<rect x="{left:.4g}" y="{top:.4g}" width="{width}" height="8" fill="currentColor" '
        f'fill-opacity="{0.04 + 0.9 * dark(rows[client][column]):.2f}"/>'
        for client, top in zip(order, tops, strict=True)
        for column, left in zip(columns, lefts, strict=True)
    ]
    return _svg(
        lefts[-1] + width,
        tops[-1] + 9,
        "What clients are compared by",
        shapes,
        f"Round {data['round']}: {_COMPARED[kind]}",
    )


def _curves(curves: dict[str, Sequence[float]], caption: str, log: bool = False) -> str:
    """Draw a method's curve, and thinner those that it is compared with."""
    values = [value for curve in curves.values() for value in curve]
    measure: Callable[[float], float] = math.log10 if log else float
    low, high = measure(min(values)), measure(max(values))
    last = max(map(len, curves.values()))
    shapes, heights = [], list[float]()
    styles = ("2.5", "1.2", '1.2" stroke-dasharray="4 3', '1.2" stroke-dasharray="1 2')
    for place, (name, curve) in enumerate(curves.items()):
        points = [
            (30 + 135 * n / (last - 1), 8 + 170 * (high - measure(y)) / (high - low)) for n, y in enumerate(curve)
        ]
        style = f'stroke="{"currentColor" if place else COLOURS[0]}" stroke-width="{styles[place]}"'
        shapes.append(f'<polyline fill="none" {style} points="{" ".join(f"{x:.4g},{y:.4g}" for x, y in points)}"/>')
        height = points[-1][1] + 4
        while any(abs(height - other) < 12 for other in heights):
            height += 3
        heights.append(height)
        shapes.append(f'<path {style} d="M169 {height - 4:.4g}h14"/>{_text(186, height, name)}')
    for value in (low, high):
        y = 12 + 170 * (high - value) / (high - low)
        shapes.append(_text(26, y, f"{10**value if log else value:.2g}", "end"))
    shapes += [_text(30, 200, "round 1"), _text(165, 200, str(last), "end")]
    return _svg(244, max(204, *heights), caption, shapes, caption)


def _by_client(name: str, data: dict[str, Any]) -> str:
    """Accuracy of each client, with its own and with FedAvg's model."""
    order, tops = _rows_by_group(data["groups"], 9)
    low = min(*data["clients"], *DATA["fedavg"]["clients"], *DATA["local"]["clients"])
    shapes = []
    for client, top in zip(order, tops, strict=True):
        marks = [
            (one["clients"][client] - low) / (100 - low) * 190 + 5 for one in (data, DATA["fedavg"], DATA["local"])
        ]
        y = top + 4
        shapes.append(f'<path d="M{marks[2]:.4g} {y - 4:.4g}v8" stroke="currentColor" stroke-opacity="0.6"/>')
        shapes.append(f'<circle cx="{marks[1]:.4g}" cy="{y:.4g}" r="3" fill="none" stroke="currentColor"/>')
        colour = COLOURS[data["groups"][client] % len(COLOURS)]
        shapes.append(f'<circle cx="{marks[0]:.4g}" cy="{y:.4g}" r="4" fill="{colour}"/>')
    bottom = tops[-1] + 22
    shapes += [_text(0, bottom, f"{low:.3g} %"), _text(200, bottom, "100 %", "end")]
    caption = "Final accuracy of each client (row); dot: this method, by true group; circle: FedAvg; bar: Local-only"
    return _svg(204, bottom + 4, f"Accuracy of the clients with {name}", shapes, caption)


def _picture(name: str) -> str:
    """Draw a method's run from docs/pictures.json."""
    data = DATA[name]
    label = TITLES[name]
    if name == "two_phase":
        curves = {
            "Two-phase": data["two_phase"],
            "One-shot": data["one_shot"],
            "IFCA": data["ifca"],
            "Oracle": data["oracle"],
        }
        panels = [
            _curves(curves, "Distance from the true models; two-phase's first five rounds are phase 1", log=True)
        ]
        told = "Mixed linear regression of 200 clients in 3 clusters (mixed_regression/a), seed 0."
    else:
        others = {"FedAvg": "fedavg", "Local-only": "local"}
        curves = {
            label: data["accuracy"],
            **{one: DATA[key]["accuracy"] for one, key in others.items() if key != name},
        }
        several = 1 < len({*data["models"][-1]} - {"."}) < len(data["groups"])
        panels = [_assignments(data)] if several else []
        panels += [_compared(data)] if "rows" in data else []
        panels += [] if panels else [_by_client(label, data)]
        panels.append(_curves(curves, "Accuracy in %, mean over the clients"))
        told = "Rotated digits, 20 clients in four groups, 20 rounds, seed 0."
    return f'<figure class="panels">{"".join(panels)}<figcaption>{told}</figcaption></figure>'


_MARKERS: dict[str, Callable[..., str]] = {
    "api": _api,
    "configuration": _configuration,
    "commands": _commands,
    "method": _method,
    "picture": _picture,
}
"""Functions that write the text in place of a comment `<!-- name: argument -->`, by name."""
