"""Every key of an experiment: its type, its default and what it does.

These dataclasses, and the `Settings` of each strategy, are the only place where keys, defaults and ranges are
declared.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from florets.conf.problems import did_you_mean
from florets.strategies.registry import DEFAULT, UnknownStrategy, find_strategy, settings_type, strategy_names
from florets.strategies.settings import Experiment, Settings
from florets.task.keys import Mismatch, as_declared, convert, describe, setting, type_hints

AUTO = "auto"
"""Of `task.model`: chosen once the nodes have described their data."""
OWN = "own"
"""Partition: data of each node's own."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The algorithm and its settings."""

    name: str
    settings: Settings

    def __eq__(self, other: object) -> bool:
        """Return whether names and values are equal: settings are also read without importing their class."""
        return isinstance(other, Chosen) and (self.name, vars(self.settings)) == (other.name, vars(other.settings))

    __hash__ = None  # type: ignore[assignment]  # settings hold lists

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle values by the strategy's name: their class may be one that was read without importing its module."""
        return _chosen, (self.name, vars(self.settings))


def _chosen(name: str, values: dict[str, Any]) -> Chosen:
    return Chosen(name, settings_type(name)(**values))


@dataclass(frozen=True)
class Config(Experiment):
    """One experiment, complete and checked."""

    experiment: str = setting("quickstart", "name of the preset, in conf/experiment/")
    data_dir: str = setting(
        "data",
        "folder of data sets that come as files or, where no data are named, of your own data (experiment=own_data); "
        "relative to where florets is called",
    )
    results_dir: str = setting("results", "folder of results; relative to where florets is called")
    device: str = setting("cpu", "cpu, cuda, cuda:<n>, mps or auto: a GPU if there is one")
    engine: Literal["local", "flwr"] = setting(
        "local",
        "in this process (local), or through `flwr run` (flwr): Flower's simulation, on the Ray cluster that the "
        "variable RAY_ADDRESS names, else on this machine",
    )
    superlink: str = setting(
        "",
        "engine=flwr: a connection in Flower's configuration to a running federation, simulated or real, whose "
        "results folder this machine can read; empty: a SuperLink for this run alone",
        needs="engine=flwr",
    )
    batch_clients: int | Literal["off", "auto"] = setting(
        "auto",
        "clients computed together, in process: at most this many; auto: wherever that is faster; off: each alone, "
        "equal to the bit on every engine. Results agree to rounding; engine=flwr takes auto as off",
        least=1,
        note="off computes each client's work alone, auto chooses the number",
    )
    workers: int | Literal["auto"] | None = setting(
        None,
        "processes that share the clients' work; results are equal to the bit. auto: one for each core; null: one",
        least=1,
        note="auto takes one for each core, null one process",
    )
    clients_per_node: int = setting(
        1,
        "engine=flwr: simulated clients that one Flower node hosts; their messages of an exchange travel as one. "
        "Results are equal to the bit",
        least=1,
    )
    cluster_test: bool = setting(
        False,
        "at evaluations also test all K models on each true cluster's test data, on the server; simulation only",
        needs="task.num_clusters",
    )
    measure: str = setting(
        "auto",
        "figure by which models are compared on validation data: accuracy, balanced_accuracy, auc, macro_f1, "
        "log_loss, r2, mae, rmse, or a function of (outputs, targets) as package.module:function, which returns a "
        "number (less is better where it has higher_is_better = False); auto: the loss",
    )
    patience: int | None = setting(
        None,
        "end the run once `measure` on validation data has not improved for this many evaluations, and keep the "
        "models of the best one; null: after num_rounds, with the last ones",
        least=1,
        needs="task.validation_fraction",
    )
    stop_at_groups: bool = setting(
        False, "end the run after the round in which discovery searches for groups (strategy=discovery)"
    )
    loss_matrix: bool = setting(
        True, "at the end ask every client for the loss of every final model (loss_matrix.csv and its picture)"
    )
    pictures: bool = setting(True, "draw the curves and the loss matrix; false: only the tables and the report")
    tracker: str | list[str] = setting(
        [],
        "where else the run is logged: tensorboard, mlflow (extras of the same names), a class as "
        "package.module:Class, or a list of them; stores lie in results_dir, see docs/operations.md",
    )
    quiet: bool = setting(
        False, "one plain line per round instead of a progress bar; notes, warnings and the result stay"
    )
    checkpoint_every: int = setting(
        1,
        "rounds between two checkpoints, from which resume=<run folder> goes on; 0: none. "
        "Those of cfl_gp are large (they hold the profile): write fewer with large models",
        least=0,
    )
    strategy: Chosen = dataclasses.field(default_factory=lambda: Chosen(DEFAULT, settings_type(DEFAULT)()))


OPTION_KEYS = (
    "task.data_options",
    "task.partition_options",
    "task.model_options",
    "task.table.preprocessing",
    "task.table.classes",
)
"""Keys whose value is a free mapping: the function that takes the options checks them."""


WITHOUT_EFFECT = (
    *("results_dir", "quiet", "start_timeout", "checkpoint_every", "loss_matrix"),
    *("pictures", "tracker", "workers", "superlink", "clients_per_node"),
)
"""Keys that change no figure of a run: its folder is not named by them, and they may change when it is resumed."""


def walk(kind: type, prefix: str = "") -> Iterator[tuple[str, "dataclasses.Field[Any]"]]:
    """Yield the dotted name and the field of every key of a dataclass, in order, strategies left out."""
    hints = type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name == "strategy":
            continue
        if dataclasses.is_dataclass(hints[field.name]):
            yield from walk(hints[field.name], f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field


def known_keys(strategy: str) -> list[str]:
    """Return every dotted key of an experiment with the given strategy; UnknownStrategy where there is none."""
    return list(_keys_with(settings_type(strategy)))  # type: ignore[arg-type]  # mypy does not take classes as hashable


@cache
def _keys_with(settings: type[Settings]) -> tuple[str, ...]:
    return tuple(name for kind, prefix in ((Config, ""), (settings, "strategy.")) for name, _ in walk(kind, prefix))


def as_plain(config: Config) -> dict[str, Any]:
    """Return a configuration as nested plain values, as `config.yaml` holds it."""
    values = dataclasses.asdict(config)
    values["strategy"] = {"name": config.strategy.name, **values["strategy"]["settings"]}
    first = ["experiment", "strategy"]
    return {name: values[name] for name in [*first, *(name for name in values if name not in first)]}


def read_config(values: Mapping[str, Any], problems: list[str]) -> tuple[Config | None, list[str]]:
    """Build a `Config` from nested plain values; return also the keys of a wrong type, which have their defaults."""
    defaulted: list[str] = []
    given = values.get("strategy", {})
    strategy = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = str(strategy.pop("name", DEFAULT))
    settings = read_strategy(name, problems)
    if settings is None:
        return None, defaulted
    rest = {key: value for key, value in values.items() if key != "strategy"}
    read = _read_fields(Config, rest, "", problems, defaulted)
    chosen = settings(**_read_fields(settings, strategy, "strategy.", problems, defaulted))
    return Config(**{**read, "strategy": Chosen(find_strategy(name).id, chosen)}), defaulted


def read_strategy(name: str, problems: list[str]) -> type[Settings] | None:
    """Return the settings of a strategy; where there is none, None, and why is appended to `problems`."""
    try:
        settings = settings_type(name)
    except UnknownStrategy as error:
        hint = "" if ":" in name else did_you_mean(name, strategy_names())
        problems.append(
            f"strategy={name}: {error}; there are {', '.join(strategy_names())}, or package.module:Class.{hint}"
        )
        return None
    if ":" in name and (wrong := as_declared(settings())[1]):
        problems += [f"strategy={name}: the default {settings.__name__}.{line}" for line in wrong]
        return None
    return settings


def _read_fields(
    kind: type[Any], values: Mapping[str, Any], prefix: str, problems: list[str], defaulted: list[str]
) -> dict[str, Any]:
    hints = type_hints(kind)  # type: ignore[arg-type]  # see above
    fields = {field.name: field for field in dataclasses.fields(kind)}
    read: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if name not in fields:
            keys = [f"{prefix}{known}" for known in fields]
            problems.append(f"{path}: there is no such key.{did_you_mean(path, keys)}")
        elif dataclasses.is_dataclass(hints[name]):
            if isinstance(value, Mapping):
                read[name] = hints[name](**_read_fields(hints[name], value, f"{path}.", problems, defaulted))
            else:
                defaulted.append(path)
                problems.append(f"{path}={show(value)}: holds several keys; set them as {path}.<key>=<value>.")
        else:
            try:
                read[name] = convert(value, hints[name])
            except Mismatch:
                defaulted.append(path)
                problems.append(
                    f"{path}={show(value)}: must be {describe(hints[name])}."
                    f"{did_you_mean(show(value), words_of(hints[name]))}"
                )
    return read


def words_of(kind: Any) -> tuple[str, ...]:
    """Return the words that an annotated type takes: of `int | Literal["auto"]` it is "auto"."""
    if get_origin(kind) in (Union, UnionType):
        return tuple(word for option in get_args(kind) for word in words_of(option))
    return get_args(kind) if get_origin(kind) is Literal else ()


def show(value: Any) -> str:
    """Return a value as a user writes it on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)
