"""A run's knowledge of its nodes' own data, and the files of its folder that hold it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.conf.problems import ConfigError
from florets.conf.run_config import task_spec
from florets.conf.saved import saved_config
from florets.conf.schema import AUTO, Config, as_plain
from florets.reports.folder import write_whole
from florets.task.partitions.own import OWN
from florets.task.spec import PREPARED, TaskSpec

if TYPE_CHECKING:
    # What reads tables is imported where there are some.
    from florets.server_app.data_findings import Finding
    from florets.task.data.tables.description import Description
    from florets.task.data.tables.preprocessing import Preprocessing

ASKED = "asked.json"
PREPROCESSING, DESCRIPTION, CHECK = "preprocessing.json", "description.json", "check.json"


@dataclass(frozen=True)
class OwnData:
    """The completed configuration, and what the sites' own data have in common: nothing of simulated clients."""

    config: Config
    table: Mapping[str, Any] = field(default_factory=dict)
    """The task's `table`, with the preprocessing."""
    sites: "Mapping[str, Description]" = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    """What was found, for the user."""
    findings: "tuple[Finding, ...]" = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The configuration as it was asked for, in plain values: a later command is compared with it."""

    def save(self, folder: Path) -> None:
        """Write ``preprocessing.json`` (of tables) and ``description.json`` into a run's folder."""
        if prepared := self.table.get(PREPARED):
            write_whole(folder / PREPROCESSING, json.dumps(prepared, indent=1, ensure_ascii=False) + "\n")
        if self.asked:
            write_whole(folder / ASKED, json.dumps(self.asked) + "\n")
        if self.sites:
            save_findings(folder, self.sites, self.findings)


def save_findings(folder: Path, sites: "Mapping[str, Description]", findings: "Sequence[Finding]") -> None:
    """Write ``description.json`` and ``check.json``."""
    plain = {key: json.loads(site.to_json()) for key, site in sites.items()}
    write_whole(folder / DESCRIPTION, json.dumps(plain, ensure_ascii=False) + "\n")
    write_whole(folder / CHECK, json.dumps([asdict(one) for one in findings], indent=1) + "\n")


def is_own(config: Config) -> bool:
    """Return whether the run's nodes have data of their own that they can describe."""
    return config.task.data == OWN and config.task.partition == OWN


def is_declared(config: Config) -> bool:
    """Return whether the user says what nodes' own data have in common: they describe nothing.

    With noise they never do: a description has none.
    """
    return bool(config.task.table.preprocessing) or config.privacy.has_noise


def not_described(config: Config) -> OwnData:
    """Return what holds where nodes describe nothing: simulated ones, and those of a user's function."""
    asked = {}
    if config.task.model == AUTO:
        asked, config = as_plain(config), replace(config, task=replace(config.task, model="mlp"))
    return OwnData(config, TaskSpec(**task_spec(config)).table, asked=asked)


def table_of(config: Config, preprocessing: "Preprocessing | None") -> dict[str, Any]:
    """Return the task's `table`: what is declared and, if there are tables, how they are prepared."""
    declared = dict(TaskSpec(**task_spec(config)).table)
    return declared if preprocessing is None else {**declared, PREPARED: preprocessing.to_plain()}


def saved_data(config: Config, folder: Path) -> OwnData:
    """Return what an interrupted run in a folder had agreed on; ConfigError if a file is missing or damaged."""
    if not is_own(config):
        return OwnData(config, table_of(config, None))
    # A sweep that goes on asks for the run as it was typed; the run's file has what followed from the data.
    config = replace(config, task=saved_config(folder, trust=True).task)
    preprocessing = read_preprocessing(folder)
    if preprocessing is None and not is_declared(config) and _had_tables(folder):
        raise ConfigError(f"{folder / PREPROCESSING} is missing: the run cannot continue without it; run it again.")
    return OwnData(config, table_of(config, preprocessing))


def _had_tables(folder: Path) -> bool:
    try:
        sites = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        return any(site["form"] == "table" for site in sites.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return True


def read_preprocessing(folder: Path) -> "Preprocessing | None":
    """Return how a run's tables are prepared; None where it has none; raise ConfigError for a damaged file."""
    file = folder / PREPROCESSING
    if not file.is_file():
        return None
    from florets.task.data.tables.preprocessing import Preprocessing

    try:
        return Preprocessing.of(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be used ({error}); run the experiment again.") from None
