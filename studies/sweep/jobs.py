"""Jobs of a sweep as one data frame, their groups over seeds, and `summary.csv`."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from florets.conf.problems import ConfigError
from florets.reports.scores import FIGURES, HIGHER_IS_BETTER
from florets.reports.summary import RunSummary
from florets.reports.tables import write_csv
from florets.strategies import TITLES

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "summary.csv"
MEASURE = "validation_measure"
"""Column that names the validation figure."""
PARTICIPATION = "participation"
"""Column of a stored sweep, which has no folders to take it from."""
STRATEGY = "strategy"

_FIRST = "rounds"
"""The first figure: columns before it are keys."""
_FIELDS = [field.name for field in fields(RunSummary) if field.name not in ("final_metrics", "final_pooled")]
_TEXTS = ("experiment", STRATEGY, "folder", "discovery", "error", MEASURE)
_LISTS = ("warnings", "left_out")
_SAMPLES = "strategy.fraction_train"


def figure_column(name: str) -> str:
    """Return the name of a column of figures: of the summary, or ``<score>.<figure>``.

    Raises
    ------
    KeyError
        If there is no such figure.
    """
    score, _, figure = name.partition(".")
    if name not in (*_FIELDS, "megabytes") and (score not in HIGHER_IS_BETTER or figure not in FIGURES):
        raise KeyError(name)
    return name


@dataclass(frozen=True)
class JobResult:
    """One job of a sweep: what the command gave for it, the run's folder, and its summary or why it failed.

    `participation` is the fraction of the clients that a round samples, None where the job came to no configuration;
    `measure` names the validation figure, empty without validation data.
    """

    overrides: dict[str, str]
    folder: Path | None
    summary: RunSummary | None
    error: str | None
    participation: float | None = None
    measure: str = ""

    @property
    def figures(self) -> dict[str, Any]:
        """The figures by column: those of the summary, and of each score such as ``accuracy.mean``."""
        found: dict[str, Any] = {} if self.summary is None else asdict(self.summary)
        metrics = found.pop("final_metrics", {})
        found.pop("final_pooled", None)
        found |= {f"{score}.{name}": value for score, of in metrics.items() for name, value in of.items()}
        # A failed job may lack a text, and is known by it.
        error = None if self.summary is not None else self.error or "no reason"
        found |= {PARTICIPATION: self.participation, MEASURE: self.measure or None}
        return found | {"folder": self.folder, "error": error}


@dataclass(frozen=True)
class Jobs:
    """Jobs of a sweep, a row for each.

    `keys`: what the command gave for them, as texts; empty where it gave nothing. `figures`: of their runs; of failed
    ones nothing but the ``error``.
    """

    keys: pd.DataFrame
    figures: pd.DataFrame

    @classmethod
    def of(cls, jobs: Sequence[JobResult]) -> Jobs:
        """Return the jobs that a command ran."""
        return cls._from([job.overrides for job in jobs], [job.figures for job in jobs])

    @classmethod
    def read(cls, path: Path) -> Jobs:
        """Return the jobs of an earlier sweep, from its table."""
        rows = read_rows(path)
        # Keys given by hand are in every row; those that only a summary adds are missing for failed jobs.
        left_out = {name for name in ("experiment", STRATEGY, "seed") for row in rows if not row.get(name)}
        try:
            keys = [{name: row[name] for name in keys_of(row) if row[name] and name not in left_out} for row in rows]
            own = [set(one) - set(_FIELDS) for one in keys]
            figures = [
                {name: _read(name, text) for name, text in row.items() if name not in names}
                for row, names in zip(rows, own, strict=True)
            ]
            for one in figures:
                folder = Path(one["folder"]) if one.get("folder") else None
                one |= {"folder": folder, PARTICIPATION: participation_of(folder)}
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            raise _unreadable(path, error) from None
        return cls._from(keys, figures)

    @classmethod
    def _from(cls, keys: Sequence[Mapping[str, str]], figures: Sequence[Mapping[str, Any]]) -> Jobs:
        import pandas as pd

        known = [*_FIELDS, "megabytes", PARTICIPATION, MEASURE, "error"]
        names = [*known, *dict.fromkeys(name for one in figures for name in one if name not in known)]
        frame = pd.DataFrame(list(figures), columns=names, index=range(len(keys)), dtype=object)
        numbers = [name for name in names if name not in (*_TEXTS, *_LISTS)]
        frame = frame.astype(dict.fromkeys(numbers, "float64"))
        frame["megabytes"] = (frame["bytes_down"] + frame["bytes_up"]) / 1e6
        return cls(pd.DataFrame(list(keys), index=range(len(keys)), dtype=object).fillna(""), frame)

    def __len__(self) -> int:
        return len(self.figures)

    def given(self) -> list[dict[str, str]]:
        """Return the keys of each job."""
        return [{str(key): str(value) for key, value in one.items()} for one in self.keys.to_dict("records")]

    def take(self, places: Sequence[int]) -> Jobs:
        """Return the jobs in some places."""
        return Jobs(self.keys.iloc[list(places)], self.figures.iloc[list(places)])

    @property
    def runs(self) -> pd.DataFrame:
        """The figures of the jobs that are finished."""
        return self.figures[self.figures["error"].isna()]

    @property
    def failed(self) -> int:
        """How many failed."""
        return len(self) - len(self.runs)

    def by(self, keys: Sequence[str]) -> dict[tuple[str, ...], Jobs]:
        """Return the jobs by their values of some keys, in the order of their first jobs."""
        found: dict[tuple[str, ...], list[int]] = {}
        for place, values in enumerate(self.keys[list(keys)].to_numpy().tolist()):
            found.setdefault(tuple(values), []).append(place)
        return {values: self.take(places) for values, places in found.items()}

    @property
    def names(self) -> list[str]:
        """The jobs' overrides as the command line would give them."""
        return [" ".join(f"{k}={v}" for k, v in one.items() if v) or "(no overrides)" for one in self.given()]

    def write(self, path: Path) -> None:
        """Write the jobs, in their order."""
        figures = self.figures.drop(columns=["megabytes", PARTICIPATION])
        if not figures["final_validation"].notna().any():
            figures = figures.drop(columns=[MEASURE])
        names = [*_FIELDS, *(str(name) for name in figures if name == MEASURE or "." in str(name))]
        rows = []
        for keys, one in zip(self.given(), figures.to_dict("records"), strict=True):
            row = {str(name): _cell(str(name), value) for name, value in one.items()}
            # A failed job has no summary: its keys fill the columns of the same name (strategy, seed).
            rows.append({**row, **{k: v for k, v in keys.items() if k not in row or row[k] in (None, "")}})
        write_csv(path, [*(str(key) for key in self.keys if key not in names), *names, "error"], rows)


_INTEGERS = [field.name for field in fields(RunSummary) if field.type in ("int", "int | None")]


def _cell(name: str, value: Any) -> Any:
    if name in _LISTS:
        return "; ".join(value) if isinstance(value, list) else ""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return int(value) if name in _INTEGERS or name.endswith(".clients") else value


def _read(name: str, text: str) -> Any:
    if name in _LISTS:
        return text.split("; ") if text else []
    return text or None if name in _TEXTS else float(text) if text else None


@dataclass(frozen=True)
class Group:
    """The jobs that differ in nothing but the seed; `sampled` tells the participation where others have another."""

    strategy: str
    settings: dict[str, str]
    jobs: Jobs
    sampled: str = ""

    @property
    def label(self) -> str:
        """Name the group: its strategy, and what else varies within the sweep."""
        return self._named(self.strategy)

    @property
    def title(self) -> str:
        """The label with the strategy's name as papers write it."""
        return self._named(TITLES.get(self.strategy, self.strategy))

    def _named(self, name: str) -> str:
        sampled = [f"({self.sampled})"] if self.sampled else []
        return " ".join([name, *sampled, *(f"{key}={short(value)}" for key, value in self.settings.items())])


def group_jobs(jobs: Jobs) -> tuple[dict[str, str], list[Group]]:
    """Group jobs that are equal but for the seed, in the order of their first job.

    Returns
    -------
    (dict, list of Group)
        The overrides that all jobs have in common, and the groups; a group's ``settings`` are what varies.
    """
    keys = [str(key) for key in jobs.keys if key != "seed"]
    common = {key: str(jobs.keys[key].iloc[0]) for key in keys if jobs.keys[key].nunique() == 1}
    groups = []
    for values, same in jobs.by(keys).items():
        given = {key: value for key, value in zip(keys, values, strict=True) if value}
        varying = {key: value for key, value in given.items() if key not in (*common, STRATEGY)}
        known, shares = same.figures[STRATEGY].dropna(), same.figures[PARTICIPATION].dropna()
        strategy = str(known.iloc[0]) if len(known) else given.get(STRATEGY, "default strategy")
        share = float(shares.iloc[0]) if len(shares) else 1.0
        # Given by hand the key stands in the label.
        differs = jobs.figures[PARTICIPATION].nunique() > 1 and share < 1.0 and _SAMPLES not in given
        sampled = f"{100 * share:.3g} % of the clients a round" if differs else ""
        groups.append(Group(strategy, varying, same, sampled))
    return common, groups


def short(value: str) -> str:
    """Return a number with at most six digits, as an optimiser draws them with all; other values as they are."""
    try:
        number = float(value)
    except ValueError:
        return value
    return value if len(value) <= 8 or not math.isfinite(number) else f"{number:.6g}"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a sweep's table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or error) from None


def _unreadable(path: Path, reason: object) -> ConfigError:
    return ConfigError([f"{path}: cannot be read as a sweep's table ({reason}); name the sweep's folder."])


def keys_of(row: Mapping[str, str]) -> list[str]:
    """Return the columns of a row that hold keys: all before the first figure."""
    names = list(row)
    return names[: next(place for place, name in enumerate(names) if name in (_FIRST, PARTICIPATION, "error"))]


def participation_of(run: Path | None) -> float | None:
    """Return the fraction of the clients that a round of a run samples, None where its folder is gone."""
    if run is None:
        return None
    try:
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    except OSError:
        return None
    return float(config.get("strategy", {}).get("fraction_train", 1.0))
