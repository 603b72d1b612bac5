"""The overview of a page: every table and figure that can be made, how far each is, and how it compares."""

import re
from collections.abc import Callable, Iterator, Sequence

from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.console import counted
from florets.reports.tables import markdown_table
from florets.server_app.reproduce.item_file import find_item, item_names
from florets.server_app.reproduce.page import Asked
from florets.server_app.reproduce.written import verdict_words

_HEAD = ("item", "settings", "cells finished", "comparisons with published values")
_OF_A_PART = ("rows", "columns", "seeds", "measures", "layout", "plot")
"""Words of a block that choose a part of its item, or its look."""


def overview_block(words: Sequence[str], text: str, asked_of: Callable[[Sequence[str]], Asked]) -> tuple[str, str]:
    """Return a table of all items, and what it says of itself.

    Parameters
    ----------
    words
        Which items: first parts of their names, as ``clove``; none: all.
    text
        The page: an item is linked to the heading above its first block.
    asked_of
        Returns what the words of an item's block ask for.

    Raises
    ------
    ConfigError
        If no item has such a name.
    """
    papers = list(dict.fromkeys(name.partition("/")[0] for name in item_names()))
    if unknown := [word for word in words if word not in papers]:
        hint = did_you_mean(unknown[0], papers)
        raise ConfigError([f"{unknown[0]}: no item's name begins so.{hint} There are: {', '.join(papers)}."])
    blocks = list(_blocks(text))
    lines = [list(_HEAD)]
    for name in sorted((n for n in item_names() if n.partition("/")[0] in (words or papers)), key=_natural):
        own: dict[tuple[str, ...], str] = {}
        for block, settings, anchor in blocks:
            if block == name:
                own.setdefault(settings, anchor)
        if not own:
            item = find_item(name)
            cells = sum(
                item.seeds if row.seeds is None else row.seeds
                for row in item.rows
                for column in item.columns
                if column.name not in row.leave_out
            )
            lines.append([name, "", f"0 of {cells}", ""])
        for settings, anchor in own.items():
            try:
                table = asked_of([name, *settings]).table
            except ConfigError:
                # The block itself says what is wrong with its words, and in which line.
                continue
            states = table.states
            lines.append(
                [
                    f"[{name}](#{anchor})",
                    " ".join(f"`{word}`" for word in settings),
                    f"{states['finished']} of {sum(states.values())}",
                    verdict_words(table).partition(": ")[2],
                ]
            )
    return markdown_table(lines), counted(len(lines) - 1, "line")


def _blocks(text: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield for each block of an item its name, its settings, and the address of the heading above it."""
    anchor, fenced = "", False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.fullmatch(r"#+ (.*)", line)):
            anchor = re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")
        if block := re.fullmatch(r"<!-- reproduce (\S+)(.*) -->", line):
            settings = [word for word in block[2].split() if word.partition("=")[0] not in _OF_A_PART]
            yield block[1], tuple(settings), anchor


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts figure_2 before figure_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
