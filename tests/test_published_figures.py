"""No figure that nobody has seen in a paper stands on a page or in a preset as that paper's."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "papers").glob("*.md")),
]
FILES = [
    path
    for place in ("conf/**/*.yaml", "papers/*.yaml", "strategies/**/*.py", "zoo/**/*.py")
    for path in sorted(ROOT.glob(place))
]


@dataclass(frozen=True)
class Unchecked:
    """Figures told of a method's paper, and the names that the method goes by."""

    names: tuple[str, ...]
    figures: tuple[str, ...]

    def is_named(self, text: str) -> bool:
        return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE) for name in self.names)

    def inside(self, text: str) -> list[str]:
        return [figure for figure in self.figures if re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text)]


def unchecked() -> list[Unchecked]:
    entries: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests" / "unchecked_figures.yaml").read_text())
    return [Unchecked(tuple(entry["names"]), tuple(entry["figures"])) for entry in entries]


def claims(text: str, known: Sequence[Unchecked]) -> Iterator[str]:
    """Yield the figures that stand with their method's name in a paragraph's words, or in a table's row or head."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        rows = [line for line in lines if line.lstrip().startswith("|")]
        words = " ".join(line for line in lines if line not in rows)
        for told in (words, *(f"{rows[0]} {row}" for row in rows[1:])):
            for entry in known:
                if entry.is_named(told):
                    yield from entry.inside(told)


def references(values: dict[str, Any], known: Sequence[Unchecked]) -> Iterator[str]:
    told: list[tuple[str, float]] = []
    for block in values.get("paper", []):
        for columns in block["values"].values():
            # 'never' is no figure.
            texts = {column: str(figure).split(" ±")[0] for column, figure in columns.items() if figure != "never"}
            told += [(column, float(text)) for column, text in texts.items()]
    for column, value in told:
        for entry in known:
            if entry.is_named(column.replace("_", "-")) or entry.is_named(column):
                yield from (f for f in entry.figures if re.fullmatch(r"[\d.]+", f) and float(f) == value)


def test_no_unchecked_figure_stands_as_a_papers() -> None:
    known, found = unchecked(), {}
    for path in (*PAGES, *FILES):
        text = path.read_text(encoding="utf-8")
        is_item = path.suffix == ".yaml" and path.is_relative_to(ROOT / "papers")
        # The figures of an item's `paper` are of many methods; each is held to its own.
        words = re.sub(r"\npaper:\n(?:[ \n].*\n|\n)*", "\n", text) if is_item else text
        told = list(claims(words.replace("\n# ", "\n"), known))
        if is_item:
            told += [figure for item in yaml.safe_load_all(text) for figure in references(item, known)]
        if told:
            found[str(path.relative_to(ROOT))] = told
    assert found == {}
