"""`florets reproduce`: a paper's tables and figures, run or made of what is finished."""

from pathlib import Path
from typing import Any

from florets.api import Typed
from florets.engines import engine
from florets.papers.command import list_items, run_item
from florets.papers.page import remake
from florets.studies.go_on import Engine


def reproduce(
    words: Typed, /, *, table: bool = False, list: bool = False, results_page: bool = False, **keys: Any
) -> int:
    """Run a table or figure of many runs; --list names all.

    Every row (data) is run with every column (method) and seed, each an ordinary run. After Ctrl-C or a crash the
    same command continues; finished cells are never run again. Keys given by hand hold for all cells
    (task.data=fashion_mnist, data_dir=..., results_dir=...); their table is kept apart.

    Parameters
    ----------
    table : bool
        Remake table and plot of the cells that are finished; run none.
    list : bool
        Every item and its progress, for the given data_dir and other keys; stored=papers/clove: for the runs behind
        the project's own page.
    results_page : bool
        Remake the tables of a page from the cells that are finished: each is between <!-- reproduce
        <item> [scale=...] [rows=...] [columns=...] [measures=...] [plot=yes] --> and <!-- end of reproduce -->. Their
        figures are kept in the folder <page>/, from which the page can be remade without the runs.

    Notes
    -----
    ::

        florets reproduce <item>        the name of an item, or a file of your own, .yaml (docs/reproduce.md)
        scale=small                     fewer seeds, rows or rounds; the table says what was cut
        n_jobs=4                        cells at a time, each in its own process
        rows=a,b columns=c,d            these alone, named as in the item's file
        seeds=5                         the first 5 seeds alone; the screen shows these, the files all of them
        stored=<folder>                 cells stored in a page's folder, such as papers/clove, count as finished
        florets reproduce --results-page <page>.md [data_dir=<folder>] [results_dir=<folder>]

    Results: <results_dir>/reproduce/<item>/<scale>/: table.md, cells.csv, and its plots, if any; the runs are in
    <results_dir>/reproduce/runs/. Exit code 1: a cell failed or was refused.
    """
    if list:
        return list_items(words, Path.cwd())
    if results_page:
        return remake(words, Path.cwd())
    return run_item(words, Engine(engine.run, engine.resume), table)
