"""`florets reproduce`: a paper's tables and figures, run or made of what is finished."""

from collections.abc import Sequence
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.engines import engine
from florets.papers.command import list_items, run_item
from florets.papers.page import remake
from florets.studies.go_on import Engine
from florets.task.imported import import_from

HELP = """florets reproduce <item> [scale=paper|small] [n_jobs=<n>] [<key>=<value> ...]
  Run a table or figure: every row (data) with every column (method) and seed, each an ordinary run. After Ctrl-C or
  a crash the same command continues; finished cells are never run again. Keys given by hand hold for all
  cells (task.data=fashion_mnist, data_dir=..., results_dir=...); their table is kept apart.
florets reproduce <file>.yaml
  The same for your own item; docs/reproduce.md describes the file.
florets reproduce <item> --table
  Remake table and plot of the cells that are finished; run none.
florets reproduce --list
  Every item and its progress, for the given data_dir and other keys (--list stored=papers/clove: for the runs
  behind the project's own page).
florets reproduce --results-page <page>.md [data_dir=...] [results_dir=...]
  Remake the tables of a page from the cells that are finished: each is between
  <!-- reproduce <item> [scale=...] [rows=...] [columns=...] [measures=...] [plot=yes] --> and
  <!-- end of reproduce -->.
  Their figures are kept in the folder <page>/, from which the page can be remade without the runs.

  scale=small      fewer seeds, rows or rounds; the table says what was cut
  n_jobs=4         cells at a time, each in its own process (workers=2: each with 2 processes for its clients)
  rows=a,b         these rows alone; columns=a,b these columns (names as in the item's file)
  seeds=5          the first 5 seeds alone; the screen shows these, the files all of them
  stored=DIR       cells that are stored in a page's folder, such as papers/clove, count as finished

Results: <results_dir>/reproduce/<item>/<scale>/: table.md, cells.csv, and its plots, if any;
the runs are in <results_dir>/reproduce/runs/."""

_OPTIONS = ("--list", "--table", "--results-page", "-h", "--help", "--debug")


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code: 0, 130 if it was interrupted, 1 if a cell failed or was refused."""
    options = [text for text in arguments if text.startswith("-")]
    words = [text for text in arguments if not text.startswith("-")]
    if unknown := [text for text in options if text not in _OPTIONS]:
        raise ConfigError(
            [f"{text}: florets reproduce has no such option ({', '.join(_OPTIONS)})." for text in unknown]
        )
    caller = Path.cwd()
    import_from(caller)
    if "--list" in options:
        return list_items(words, caller)
    if "--results-page" in options:
        return remake(words, caller)
    return run_item(words, Engine(engine.run, engine.resume), "--table" in options)
