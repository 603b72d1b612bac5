"""Ranges and combinations of keys: what can be refused without looking at any data; lines of key, rule and remedy."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import AUTO, OWN, Config, read_config, show
from florets.strategies.coverage import protection_problems, too_few
from florets.strategies.registry import usable_settings
from florets.strategies.settings import Settings
from florets.task.keys import range_problems, type_hints
from florets.task.settings import (
    LOSSES,
    PLAIN_LOSSES,
    TaskConfig,
    is_loss,
    scales_targets,
)

MOST_COMPARED = 20_000
"""Clients whose pairs the server compares: one number for each pair is 3.2 GB."""
BUILT_IN_TRACKERS = ("tensorboard", "mlflow")
"""Each is also the name of the extra that installs it."""

_PRESET = re.compile(r"\w+(?:[/.-]\w+)*", re.ASCII)
DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?", re.ASCII)
"""Devices that a run or a node may name."""
_OF_CLASSES = ("accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss")
_OF_VALUES = ("r2", "mae", "rmse")
_OF_SUMS = ("balanced_accuracy", "auc", "macro_f1", "r2", "mae", "rmse")
"""Figures over all records together that do not follow from the clients' own."""


def checked_config(values: Mapping[str, Any]) -> tuple[Config | None, list[str]]:
    """Build a `Config` from nested plain values, None without such a strategy; return it with every problem."""
    problems: list[str] = []
    config, defaulted = read_config(values, problems)
    if config is not None:
        # What a problem says of a key whose value is not the one that was meant would be a guess.
        names = [re.compile(rf"(?<![\w.]){re.escape(key)}(?!\w)") for key in defaulted]
        problems += [line for line in find_problems(config) if not any(name.search(line) for name in names)]
    return config, problems


def find_problems(config: Config) -> list[str]:
    """Return one line per problem: the key with its value, the rule, the remedy."""
    own = config.strategy.settings
    return [
        *range_problems(config),
        *range_problems(own, "strategy."),
        *_idle(config),
        *_run(config),
        *_engine(config),
        *_loss(config),
        *_measure(config),
        *_participation(config),
        *_models(config),
        *_own(own, config),
        *_task(config.task),
        *_drift(config),
        *_personal(config),
        *_privacy(config),
        *too_few(own, config, None if config.task.partition == OWN else config.num_clients),
        *_trackers(tracker_names(config.tracker)),
    ]


def _idle(config: Config) -> Iterator[str]:
    """Check the keys that another one turns on, as they are declared (`florets.task.keys.setting`)."""
    own = config.strategy.settings

    def value_of(key: str) -> Any:
        rest = key.removeprefix("strategy.")
        return attrgetter(rest)(config if rest == key else own)

    for key, field, needs in (*_needing(Config), *_needing(type(own), "strategy.")):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        needed, sign, values = (*re.split("([=>])", needs), "", "")[:3]
        given, value = value_of(needed), value_of(key)
        is_on = given not in (None, "none", "", 0, [])
        if sign:
            is_on = str(given) in values.split("|") if sign == "=" else given > int(values)
        if value != default and not is_on:
            wanted = needs.replace("|", " or ")
            yield f"{key}={show(value)}: has an effect only with {wanted}; add that, or leave it out."


def _needing(kind: type, prefix: str = "", of_group: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], str]]:
    """Yield the dotted name and the field of each key that needs another one, and what it needs."""
    hints = type_hints(kind)
    for field in dataclasses.fields(kind):
        needs = field.metadata.get("needs", of_group)
        inner = hints[field.name]
        if isinstance(inner, type) and dataclasses.is_dataclass(inner) and field.metadata:
            yield from _needing(inner, f"{prefix}{field.name}.", needs)
        elif needs:
            yield f"{prefix}{field.name}", field, needs


def _own(settings: Settings, config: Config) -> list[str]:
    """Return what a strategy's own check says; one that fails, or says something else than lines, is named."""
    name = f"strategy: {type(settings).__name__}.problems()"
    try:
        lines: Any = settings.problems(config)
    # It may be anybody's code.
    except Exception as error:
        raise ConfigError(f"{name} failed with {type(error).__name__}: {error}; correct the strategy.") from error
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ConfigError(f"{name} returned {lines!r}, and must return a list of strings; correct the strategy.")
    return lines


def _run(config: Config) -> Iterator[str]:
    # The name becomes a path of the results: it must not lead out of their folder.
    if not _PRESET.fullmatch(config.experiment):
        yield f"experiment={config.experiment}: must be a preset's name, such as clove/linear."
    if config.seed >= 2**63:
        yield f"seed={config.seed}: must be less than 2**63, the largest number that a message can hold."
    for name, folder in (("data_dir", config.data_dir), ("results_dir", config.results_dir)):
        if not folder.strip():
            yield f"{name}: must name a folder; leave the key out for the default."


def _engine(config: Config) -> Iterator[str]:
    engine = config.engine
    for key, value, able in (
        ("batch_clients", config.batch_clients, ("off", "auto", 1)),
        ("workers", config.workers, (None, 1)),
    ):
        if engine == "flwr" and value not in able:
            yield f"{key}={value}: is for engine=local; leave it out, or use that."
    if engine == "flwr" and config.task.partition == OWN and not config.superlink:
        yield (
            "engine=flwr: simulated nodes have no data of their own (task.partition=own); use engine=local for a dry "
            "run over the folders in data_dir, or superlink=<connection> for real nodes (docs/deployment.md)."
        )
    if config.clients_per_node > 1 and config.task.partition == OWN:
        yield (
            f"clients_per_node={config.clients_per_node}: a node with data of its own is one client; leave it out, "
            "and start a SuperNode for each client."
        )
    if not DEVICE.fullmatch(config.device):
        yield f"device={config.device}: must be cpu, cuda, cuda:<number>, mps or auto."


def _loss(config: Config) -> Iterator[str]:
    """Check what holds for all losses but those that linear models and mixtures know."""
    loss, name = config.task.loss, config.strategy.name
    if loss in PLAIN_LOSSES:
        return
    if config.strategy.settings.mixes:
        yield f"strategy={name}: mixes outputs, which have no meaning for task.loss={loss}; use another strategy."
    if config.train.solver == "newton":
        yield f"train.solver=newton: solves squared errors and cross-entropy, not task.loss={loss}; leave it out."


def _measure(config: Config) -> Iterator[str]:
    loss = config.task.loss
    figures = _OF_CLASSES if loss == "cross_entropy" else _OF_VALUES if scales_targets(loss) else ()
    if config.statistics and not {*figures} & {*_OF_SUMS}:
        yield (
            f"statistics=true: sums the results of classes or values, and task.loss={loss} has neither; leave "
            "statistics out."
        )
    if ":" in config.measure and loss == "reconstruction":
        yield f"measure={config.measure}: needs targets, and task.loss=reconstruction has none; use measure=auto."
    able = ("auto", *figures, "package.module:function")
    if config.measure not in able and ":" not in config.measure:
        yield f"measure={config.measure}: task.loss={loss} has no such figure; use {', '.join(able)}."
    if config.patience is not None:
        yield from lacks_sums(config)


def lacks_sums(config: Config) -> list[str]:
    """Return what is wrong where the validation figure follows from sums that no client is asked for."""
    if config.measure not in _OF_SUMS or config.statistics:
        return []
    return [
        f"measure={config.measure}: on validation data it is over all records together, from sums that clients send; "
        "add statistics=true."
    ]


def _participation(config: Config) -> Iterator[str]:
    """Check counts of clients; of nodes with data of their own nobody knows how many will come."""
    clients, least = config.num_clients, config.min_clients
    if config.task.partition == OWN or clients < 1:
        return
    # Of nodes with data of their own the number is known where their folders are counted.
    if isinstance(config.workers, int) and config.workers > clients:
        yield f"workers={config.workers}: must be at most num_clients={clients}; auto means one for each core."
    if least is not None and least > clients:
        yield f"min_clients={least}: must be at most num_clients={clients}; null means all of them."
    settings, rho = config.strategy.settings, config.strategy.settings.fraction_train
    # The tolerance lets 1/3 of 3 clients be one client in spite of rounding.
    if 0 < rho * clients < 1 - 1e-9:
        yield (
            f"strategy.fraction_train={show(rho)}: of num_clients={clients} no client would take part in a round; "
            f"use at least {1 / clients:.4g}, or more clients."
        )
    if not settings.compares and config.first_round != "update":
        return
    # Comparisons of all pairs must fit into memory.
    compared = clients if settings.compares == "clients" else int(rho * clients + 1e-9)
    if compared > MOST_COMPARED:
        yield (
            f"num_clients={clients}: all pairs of {compared} clients must be compared; the server can handle at most "
            f"{MOST_COMPARED}; use fewer, a lower strategy.fraction_train, or a strategy that compares clients with "
            "models (clove, ifca)."
        )


def _models(config: Config) -> Iterator[str]:
    """Check K, which only strategies with several models use: FedAvg has one model and Local-only one per client."""
    settings = config.strategy.settings
    name, number = ("k_max", config.k_max) if config.k == "auto" else ("k", config.k)
    if settings.one_model or (config.k == "auto" and settings.finds_k and settings.grows):
        return
    if config.k == "auto" and not settings.finds_k:
        able = " or ".join(f"strategy={name}" for name, other in usable_settings().items() if other.finds_k)
        yield f"k=auto: strategy {config.strategy.name} cannot find K; give an integer, or use {able}."
        return
    if number < 1:
        yield f"{name}={number}: must be at least 1."
    # Of nodes with data of their own the number is known only where they are looked for: `check_own_clients`.
    if number > config.num_clients >= 1 and config.task.partition != OWN:
        yield _too_many_models(name, number, config.num_clients, f"num_clients={config.num_clients}")


def _too_many_models(name: str, number: int, clients: int, counted: str) -> str:
    return f"{name}={number}: more models than clients ({counted}); use {name} of at most {clients}, or more clients."


def check_own_clients(config: Config, folders: int | None = None) -> None:
    """Raise ConfigError if fewer nodes with own data (`folders`) are there than models, or than the run needs."""
    if config.task.partition != OWN:
        return
    name = "num_clients" if config.min_clients is None else "min_clients"
    needed = config.min_clients or config.num_clients
    known = needed if folders is None else folders
    if lines := too_few(config.strategy.settings, config, folders):
        raise ConfigError(lines)
    if folders is not None and folders < needed:
        raise ConfigError(
            f"{name}={needed}: data_dir={config.data_dir} holds the data of {folders} clients; use min_clients of "
            f"at most {folders}, or add clients."
        )
    if config.k != "auto" and not config.strategy.settings.one_model and config.k > known:
        counted = f"{name}={needed}" if folders is None else f"{folders} with data"
        raise ConfigError(_too_many_models("k", config.k, known, counted))


def _task(task: TaskConfig) -> Iterator[str]:
    """Check what is known of the tasks' own names; names as such are resolved where tasks are built."""
    if task.data == OWN:
        yield from _class_names(task.data_options.get("classes"))
    if task.partition == OWN and task.num_clusters != 0:
        yield (
            f"task.num_clusters={task.num_clusters}: with task.partition=own the clusters are unknown; use "
            f"task.num_clusters=0. Nodes may state theirs as true-cluster in their node config."
        )
    if task.model == AUTO and task.partition != OWN:
        yield "task.model=auto: it is only chosen for nodes with their own data; name a model."
    if not is_loss(task.loss):
        yield (
            f"task.loss={task.loss}: must be one of {', '.join(LOSSES)}, or package.module:function."
            f"{did_you_mean(task.loss, LOSSES)}"
        )


def _class_names(names: Any) -> Iterator[str]:
    """Refuse a class name that is no text: it is not known what it was written as."""
    for place, name in enumerate(names if isinstance(names, list) else (), 1):
        if not isinstance(name, str) and type(name) is not int:
            yield (
                f"task.data_options.classes: name {place} is read as {type(name).__name__} and not as the text that "
                'was written: put the names in quotes, classes: ["no", "yes"].'
            )
            return


def _drift(config: Config) -> Iterator[str]:
    drift, task = config.task.drift, config.task
    if not drift.rounds:
        return
    given = f"task.drift.rounds={show(drift.rounds)}"
    total = config.strategy.settings.rounds_before + config.num_rounds
    yield from drift.problems()
    if max(drift.rounds) > total:
        yield f"{given}: must be rounds of the run, which has {total}; lower them, or raise num_rounds."
    if task.num_clusters < 2:
        yield f"{given} needs at least two known groups; here task.num_clusters={task.num_clusters}."
    held_out = "what is held out in one round would be trained on in another (task.drift.rounds)"
    if task.validation_fraction > 0:
        yield f"task.validation_fraction={show(task.validation_fraction)}: {held_out}; leave out one of them."
    if config.loss_data == "held_out":
        yield f"loss_data=held_out: {held_out}; use loss_data=train."


def _personal(config: Config) -> Iterator[str]:
    if config.personal in (None, "none"):
        return
    name, loss = config.personal, config.task.loss
    if loss not in PLAIN_LOSSES or loss == "reconstruction":
        yield f"personal={name}: is for logits or one value, and not for task.loss={loss}; use personal=none."
    if config.averaging == "gradients":
        yield f"averaging=gradients: clients of personal={name} send models; use averaging=models, or personal=none."


def _privacy(config: Config) -> Iterator[str]:
    yield from protection_problems(config.strategy.settings, config, f"strategy={config.strategy.name}")
    kind = f"privacy.kind={config.privacy.kind}"
    if not config.privacy.has_noise:
        return
    for key in ("patience", "stop_at_groups"):
        if (value := getattr(config, key)) not in (None, False):
            rule = "scores without noise would end the run; leave it out"
            yield f"{key}={show(value)}: not covered by {kind}: {rule}."
    if config.privacy.hides_records and (rounds := config.task.drift.rounds):
        yield f"task.drift.rounds={show(rounds)}: not covered by {kind}, which trains record by record; leave it out."
    if config.task.data != OWN:
        return
    if config.privacy.hides_records and config.task.table.preprocessing:
        table = config.task.table
        for key, value, remedy in (
            ("stratify", table.stratify, "give task.table.stratify=false"),
            ("group", table.group, "leave it out"),
        ):
            if value:
                yield (
                    f"task.table.{key}={show(getattr(table, key))}: not covered by {kind}: one record would move "
                    f"others in the split; {remedy}."
                )
    declared = config.task.partition == OWN and {"input_shape", "num_outputs"} <= config.task.partition_options.keys()
    if not declared and not config.task.table.preprocessing:
        yield (
            f"{kind}: what own data have in common must be declared, since describing them has no noise: of tables "
            "task.table.preprocessing=<preprocessing.json> (docs/tables.md), of arrays and images of "
            "task.partition=own task.partition_options.input_shape and num_outputs, and task.data_options.classes or "
            "regression=true (in Python classes= or regression=True)."
        )
    if config.task.partition == OWN and config.privacy.delta is None and not config.privacy.hides_records:
        yield "privacy.delta: the number of clients is not known; give it, far below 1 / clients."


def tracker_names(value: str | Sequence[str]) -> list[str]:
    """Return the names that the key `tracker` holds, one or a list."""
    return [value] if isinstance(value, str) else list(value)


def _trackers(names: Sequence[str]) -> Iterator[str]:
    """Check names of trackers; what an import path leads to shows where the run starts."""
    for name in dict.fromkeys(names):
        if ":" not in name and name not in BUILT_IN_TRACKERS:
            yield f"tracker={name}: must be {', '.join(BUILT_IN_TRACKERS)} or an import path package.module:Class."
