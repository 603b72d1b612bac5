"""Tables of runs inside a page of text: every figure between two markers comes from finished runs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from florets.conf.problems import ConfigError, did_you_mean
from florets.papers.page_pictures import Drawn
from florets.papers.table import Table
from florets.papers.written import (
    code_words,
    compared_grid,
    grid,
    methods_grid,
    reason_letters,
    state_words,
    verdict_words,
)
from florets.reports.tables import markdown_table

_KINDS = "overview|reproduce|sweep"
_BLOCK = re.compile(
    rf"(?P<begin><!-- (?P<kind>{_KINDS})(?P<words>(?: [^\n]*?)?) -->\n)"
    r"(?P<old>.*?)(?P<end><!-- end of (?P=kind) -->)",
    re.DOTALL,
)
_MARK = re.compile(r"<!-- (?P<end>end of )?(?P<kind>\w+)(?: [^\n]*)?-->")

_ONLY = {"layout": "methods", "plot": "yes"}
_OWN_WORDS = ("measures", *_ONLY)

Block = Callable[[Sequence[str]], tuple[str | None, str]]
"""Takes a block's words; returns its text, None to leave it as it is, and what it says of itself."""


OnPage = Callable[[Table, str], Drawn]
"""Draws a table's pictures beside the page under a name."""


@dataclass(frozen=True)
class Asked:
    """The table that a block's words name but for its measures, the command that makes it, and its name in files."""

    table: Table
    command: str
    name: str


@dataclass(frozen=True)
class Made:
    """A page's new text, and of every block its words with what it says or why it was left."""

    text: str
    told: tuple[str, ...]


def made_page(text: str, blocks: Mapping[str, Block]) -> Made:
    """Return a page with its blocks made anew.

    A block begins with ``<!-- <kind> <words> -->`` on a line of its own, and ends with ``<!-- end of <kind> -->``.

    Parameters
    ----------
    text
        The page.
    blocks
        What makes a block, by its kind: ``overview``, ``reproduce`` and ``sweep``.

    Raises
    ------
    ConfigError
        If a block has no end, a line that looks like one of a block is none, or a block's words name nothing.
    """
    told: list[str] = []
    if wrong := _unpaired(text):
        raise ConfigError(wrong)

    def block(found: re.Match[str]) -> str:
        try:
            body, said = blocks[found["kind"]](found["words"].split())
        except ConfigError as error:
            line = text.count("\n", 0, found.start()) + 1
            at = f"line {line}, {found['begin'].strip()}"
            raise ConfigError([f"{at}: {problem}" for problem in error.problems]) from error
        told.append(f"{found['words'].strip() or found['kind']}: {said}")
        return found[0] if body is None else f"{found['begin']}\n{body}\n\n{found['end']}"

    return Made(_BLOCK.sub(block, text), tuple(told))


def _unpaired(text: str) -> list[str]:
    """Return a line for each mark that begins or ends no block, or looks like one that would."""
    kinds, problems = _KINDS.split("|"), []
    begun: tuple[int, str, str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        found = _MARK.fullmatch(line.strip())
        if found is None:
            continue
        kind, where = found["kind"], f"line {number}, {line.strip()}"
        if kind not in kinds:
            if hint := did_you_mean(kind, kinds):
                problems.append(f"{where}: there is no such block.{hint}")
        elif not found["end"]:
            if begun is not None:
                problems.append(f"line {begun[0]}, {begun[1]}: has no end; close it with <!-- end of {begun[2]} -->.")
            begun = number, line.strip(), kind
        elif begun is None or begun[2] != kind:
            problems.append(f"{where}: ends no block; there must be a <!-- {kind} ... --> before it.")
        else:
            begun = None
    if begun is not None:
        problems.append(f"line {begun[0]}, {begun[1]}: has no end; close it with <!-- end of {begun[2]} -->.")
    return problems


def outside(text: str) -> str:
    """Return what of a page stands by hand: all but its blocks."""
    return _BLOCK.sub("", text)


def item_block(
    words: Sequence[str], asked_of: Callable[[Sequence[str]], Asked], on_page: OnPage, described: set[str]
) -> tuple[str | None, str]:
    """Return the tables of an item as a block's text; None where no cell is finished: the page is not emptied.

    Parameters
    ----------
    words
        ``<item> [scale=...] [rows=...] [columns=...] [measures=...] [layout=methods] [plot=yes]``.
    asked_of
        Returns what the words without the last three ask for.
    on_page
        Draws what ``plot=yes`` asks for.
    described
        What the page has told of items' settings already; this one's `about` is added.

    Raises
    ------
    ConfigError
        If the words name nothing.
    """
    own = {key: value for key, _, value in (word.partition("=") for word in words) if key in _OWN_WORDS}
    for key, value in _ONLY.items():
        if own.get(key, value) != value:
            raise ConfigError([f"{key}={own[key]}: must be {value}, or left out."])
    asked = asked_of([word for word in words if word.partition("=")[0] not in own])
    table = asked.table
    if "plot" in own and not table.item.plot:
        raise ConfigError([f"plot={own['plot']}: {table.item.name} has no plot; leave it out."])
    said = state_words(table)
    if "measures" in own:
        names = own["measures"].split(",")
        if unknown := [name for name in names if name not in table.item.measures]:
            raise ConfigError(
                [
                    f"measures={','.join(unknown)}: {table.item.name} has no such measure. It has: "
                    f"{', '.join(table.item.measures)}."
                ]
            )
        table = table.narrowed({"measures": names})
    if not table.states["finished"]:
        return None, "no cell is finished; left as it was"
    about = "" if table.item.about in described else table.item.about
    described.add(about)
    text = _tables(table, asked.command, about, turned="layout" in own)
    if "plot" not in own:
        return text, said
    drawn = on_page(asked.table, asked.name)
    images = [f"![{title}]({address})" for title, address in drawn.pictures]
    return "\n\n".join(filter(None, [text, *images, drawn.note])), f"{said}; {drawn.said}"


def _tables(table: Table, command: str, about: str, turned: bool) -> str:
    parts = [" ".join(filter(None, [f"`{command}`: {state_words(table)}.", code_words(table)]))]
    if about:
        parts.append(about)
    if table.item.cut:
        parts.append(f"Small scale: {table.item.cut}.")
    letters = reason_letters(table)
    for matrix in table.matrices():
        if matrix.rows:
            cells = methods_grid(table, matrix, letters) if turned else grid(table, matrix)
            parts += [f"{matrix.label[:1].upper()}{matrix.label[1:]}:", markdown_table(cells)]
    if turned and (words := verdict_words(table)):
        parts.append(f"In brackets what is published, with `off` where ours is not near it. {words}.")
        if letters:
            parts.append(
                "Possible reasons:\n\n" + "\n".join(f"- off {letter}: {reason}" for reason, letter in letters.items())
            )
    elif len(compared := compared_grid(table)) > 1:
        parts += [f"{verdict_words(table)}:", markdown_table(compared)]
    return "\n\n".join(parts)
