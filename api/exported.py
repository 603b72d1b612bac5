"""Models of a finished run by the names that their files get in an export, and who uses which."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from florets.conf.problems import ConfigError

if TYPE_CHECKING:
    from florets.server_app.run_models import Arrays, RunModels


@dataclass(frozen=True)
class Exported:
    """The models of a run by the names of their files, and which of them each site uses.

    Parameters
    ----------
    models
        Arrays of each model.
    sites
        Share of each model in a site's predictions, by client key; one model with share 1 unless clients mix models.
    rows
        The run's ``clients.csv``.
    """

    run: "RunModels"
    models: Mapping[str, "Arrays"]
    sites: Mapping[str, Mapping[str, float]]
    rows: Sequence[Mapping[str, str]]

    @property
    def task(self) -> str:
        """What a prediction is: a class, a value, or the error of a reconstruction."""
        loss = self.run.task.spec.loss
        return {"cross_entropy": "classification", "reconstruction": "reconstruction"}.get(loss, "regression")

    @property
    def classes(self) -> list[str]:
        """Names of the classes in the order of the models' outputs; none where there are no classes."""
        if self.task != "classification":
            return []
        run = self.run
        given = run.config.task.data_options.get("classes") or () if run.config.task.data == "own" else ()
        names = [str(name) for name in (given if run.preprocessing is None else run.preprocessing.classes)]
        return names + [str(number) for number in range(len(names), run.task.num_outputs)]


def read_exported(folder: Path, trust: bool) -> Exported:
    """Read a finished run's folder, see `florets.server_app.run_models.load_run`.

    Raises
    ------
    ConfigError
        If it is no finished run's.
    """
    from florets.server_app.run_models import load_run

    run = load_run(folder, trust)
    try:
        with (folder / "clients.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        models = {f"model_{index}": state for index, state in enumerate(run.models)}
        names = _names_of(list(run.own))
        models |= {names[key]: state for key, state in run.own.items()}
        sites = {row["client"]: shares for row in rows if (shares := _shares(row, len(run.models), names))}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError) as error:
        raise ConfigError(f"{folder / 'clients.csv'} cannot be read ({error}); run the experiment again.") from error
    return Exported(run, models, sites, rows)


def _names_of(keys: Sequence[str]) -> dict[str, str]:
    """Return a file's name for each client's own model, different even where file systems ignore the case."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key in keys:
        stem = f"client_{re.sub(r'[^A-Za-z0-9._-]+', '-', key)[:100]}"
        name = next(name for number in count(1) if (name := _numbered(stem, number)).casefold() not in taken)
        taken.add(name.casefold())
        names[key] = name
    return names


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _shares(row: Mapping[str, str], models: int, names: Mapping[str, str]) -> dict[str, float]:
    """Return the share of each model in a client's predictions; none where it has no model."""
    if row["client"] in names:
        return {names[row["client"]]: 1.0}
    mixed = {f"model_{k}": float(share) for k in range(models) if (share := row.get(f"share_{k}"))}
    if any(mixed.values()):
        return {name: share for name, share in mixed.items() if share}
    text = row["found_cluster"] or ""
    return {f"model_{text}": 1.0} if text.isdecimal() and int(text) < models else {}
