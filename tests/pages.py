"""The code blocks of the pages, and what the words after a fence ask to be done with them.

`tests/test_pages.py` has the convention.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTPUT = ("text", "console-output")
"""Languages of blocks that nobody types."""
HOW = ("", "slow", "dry")
"""How a block of shell commands is tested."""

_COMMENT = re.compile(r"\s*<!-- (before|prints): (.*?) -->\s*")
_FENCE = re.compile(r"\s*```(.*)")


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes
    ----------
    line
        Of its opening fence, from 1.
    how
        The words after the language: for shell commands one of `HOW`, else the name of the file that it becomes.
    before, prints
        Commands to be run before it, and texts that its page's run must print.
    """

    page: Path
    line: int
    language: str
    how: str
    code: str
    before: tuple[str, ...] = ()
    prints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> str:
        """The commands to be run, those that the page does not show first."""
        return "".join(f"{text}\n" for text in (*self.before, self.code))


@dataclass
class _Reader:
    page: Path
    found: list[Block] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=lambda: {"before": [], "prints": []})

    def read(self) -> list[Block]:
        lines = self.page.read_text(encoding="utf-8").splitlines()
        number = 0
        while number < len(lines):
            if comment := _COMMENT.fullmatch(lines[number]):
                self.notes[comment[1]].append(comment[2])
            elif fence := _FENCE.match(lines[number]):
                end = next(n for n in range(number + 1, len(lines)) if _FENCE.match(lines[n]))
                language, _, words = fence[1].strip().partition(" ")
                before, prints = (tuple(self.notes[kind]) for kind in ("before", "prints"))
                code = "\n".join(lines[number + 1 : end])
                self.found.append(Block(self.page, number + 1, language, words.strip(), code, before, prints))
                self.notes = {"before": [], "prints": []}
                number = end
            elif any(self.notes.values()):
                raise ValueError(f"{self.page}:{number + 1}: a comment for tests must stand right above its block")
            number += 1
        return self.found


def pages() -> list[Path]:
    """Return the pages: README and its neighbours, docs, the results by paper, examples."""
    examples = (ROOT / "examples").glob("*/README.md")
    return [
        *sorted(ROOT.glob("*.md")),
        *(p for folder in ("docs", "papers") for p in sorted((ROOT / folder).rglob("*.md"))),
        *sorted(examples),
    ]


def blocks(page: Path | None = None) -> list[Block]:
    """Return the blocks of a page, or of all pages, in their order."""
    return [block for one in ([page] if page else pages()) for block in _Reader(one).read()]
