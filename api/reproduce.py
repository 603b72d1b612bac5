"""`florets.reproduce` and its result: a table or figure of a paper, run or made from what is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.api.keys import overrides_of
from florets.conf.problems import ConfigError
from florets.engines import engine
from florets.papers.command import finished_table, run_item
from florets.papers.measures import MEASURES, read_measure
from florets.papers.request import read_request
from florets.papers.table import result_table, state_words
from florets.reports.tables import ResultTable
from florets.task.imported import import_from

if TYPE_CHECKING:
    import pandas as pd

    from florets.reports.figures import Picture


class Reproduction:
    """A table of `florets reproduce`: rows (data), columns (methods) and seeds, with what is finished of them.

    Parameters
    ----------
    words : sequence of str
        The command line of `florets reproduce`, without options.
    caller : Path, optional
        The folder that relative folders are meant from; by default the working directory.

    Raises
    ------
    ConfigError
        If there is no such item, or a key is wrong.
    """

    def __init__(self, words: Sequence[str], caller: Path | None = None) -> None:
        request, caller = read_request(words), caller or Path.cwd()
        self.folder = request.folder(caller)
        self._table = finished_table(request, caller).narrowed(request.chosen, request.seeds)

    @property
    def measures(self) -> tuple[str, ...]:
        """The item's measures, differences between columns among them."""
        return tuple(self._table.item.measures)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per run: row, column, seed, its state and why it failed, and its measures."""
        import pandas as pd

        plain = [name for name in self.measures if read_measure(name)[1] is None]
        lines = []
        for place in self._table.places:
            for seed, progress in self._table.found.get(place.key, {}).items():
                line: dict[str, Any] = {"row": place.row.label, "column": place.column.label, "seed": seed}
                line |= {"state": progress.state, "note": progress.note}
                is_finished = progress.state == "finished"
                values = progress.values
                line |= {name: MEASURES[name].value(values, place.config) if is_finished else None for name in plain}
                lines.append(line)
        return pd.DataFrame(lines, columns=["row", "column", "seed", "state", "note", *plain])

    def table(self, measure: str | None = None) -> ResultTable:
        """Return the means ± sample standard deviations of a measure, the best method of each row of data in bold.

        Its `latex()` is for papers, and `turned` has methods in rows and data in columns.

        Parameters
        ----------
        measure : str, optional
            One of `measures`, or another that docs/reproduce.md lists; by default the item's first.

        Raises
        ------
        ConfigError
            If there is no such measure.
        """
        matrix = self._table.matrix(self._known(measure))
        return replace(result_table(self._table, matrix), note=f"{matrix.label}. {state_words(self._table)}.")

    def plot(self, measure: str | None = None) -> Picture:
        """Return a figure of the means over the rows, a line for each column; the parameters are those of `table`.

        Raises
        ------
        ConfigError
            If there is no such measure, or no cell is finished.
        """
        # matplotlib takes a second
        from florets.papers.plot import rows_figure

        figure = rows_figure(self._table, [self._known(measure)])
        if figure is None:
            raise ConfigError(f"{self._table.item.name}: nothing to draw: no run of it is finished.")
        return figure

    def _known(self, measure: str | None) -> str:
        """Return the measure that is asked for, by default the item's first."""
        measure, columns = measure or self.measures[0], list(self._table.item.columns)
        try:
            if (other := read_measure(measure)[1]) not in (None, *columns):
                raise ValueError(f"{measure}: there is no column {other}. There are: {', '.join(columns)}.")
        except ValueError as error:
            raise ConfigError(f"measure={error}") from None
        return measure

    def __repr__(self) -> str:
        return f"<florets.Reproduction {self._table.item.name}: {state_words(self._table)}>"


def reproduce(item: str, /, *, run: bool = True, **keys: Any) -> Reproduction:
    """Run a table or figure of a paper as far as it is not finished, and return it.

    Parameters
    ----------
    item : str
        Its name, such as ``"clove/table_1"``, or the path of a file of your own.
    run : bool
        False: take what is finished, and run nothing.
    **keys
        What the command takes: ``scale="small"``, ``rows=["mnist"]``, ``columns=["clove", "ifca"]``, ``seeds=5``,
        ``n_jobs=4``, ``stored="papers/clove"``, and keys of all runs, such as ``data_dir="..."``.

    Returns
    -------
    Reproduction
        What is finished; failed runs are rows of its frame without figures.

    Raises
    ------
    ConfigError
        If there is no such item, or a key is wrong.
    """
    from florets.studies.go_on import Engine

    words = [item, *overrides_of(None, keys)]
    caller = Path.cwd()
    import_from(caller)
    if run:
        run_item(words, Engine(engine.run, engine.resume))
    return Reproduction(words, caller)
