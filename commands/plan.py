"""`florets plan`: bytes and memory of a run before it is run, and who holds which samples."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.saved import run_folder
from florets.conf.schema import Config
from florets.conf.validate import check_own_clients
from florets.engines.engine import num_workers
from florets.engines.own_nodes import check_device, own_nodes
from florets.reports import partition
from florets.reports.console import counted, number, say, size
from florets.reports.folder import private
from florets.reports.tables import markdown_table
from florets.server_app.build import build_checked, build_task
from florets.server_app.data_agreement import agree_here, task_of
from florets.strategies.registry import find_strategy
from florets.strategies.settings import sampled_of
from florets.studies import one_run
from florets.task.imported import import_from
from florets.task.task import Task
from florets.task.wire.masking import LEAST, protocol_bytes

HELP = """florets plan [experiment=<preset>] [key=value ...] [--partition]
  Estimate what a run sends and what memory it needs, before it is run. Nothing is trained.

  Bytes are those of models and masks, without settings, losses and what Flower adds, in a run in which every client
  replies. A round sends each participant one model, or all K if it chooses among them by their losses (IFCA in
  each round, CLoVE until its clusters are stable): a line gives that total. Memory comes on top of what
  Python, PyTorch and Flower take. With privacy.kind epsilon and delta are given.

  --partition shows instead which clients hold which samples: the clusters, and a figure of all clients in
  <results_dir>/partitions/.../partition.png. Skew is how far a client's labels are from those of all clients together
  (and of its cluster), as the mean total variation distance: 0 for equal proportions, near 1 where clients share no
  label. Values of a regression count as tenths of all clients' values, from low to high."""

_OPTIONS = ("--partition",)

_ADAM_COPIES = 4
"""Copies of a model that local training holds: parameters, gradients, and Adam's two means."""
_ARRAY_HEAD = 128
"""Bytes of an array besides its values."""
_SAMPLED = 16
"""Clients whose samples are measured; the others' are estimated by their mean."""


@dataclass(frozen=True)
class Part:
    """What a run sends `times` times: messages to clients, and bytes to and from them, each time."""

    name: str
    times: int
    messages: int
    down: int
    up: int


@dataclass(frozen=True)
class Plan:
    """Figures of a run before it is run; memory in bytes."""

    experiment: str
    strategy: str
    seed: int
    clients: int
    models: int
    parameters: int
    model_bytes: int
    rounds: int
    parts: tuple[Part, ...]
    most_down: int
    memory: dict[str, int]
    masked: Part | None
    """A round in which updates are masked, if not all are (`secure_aggregation`)."""
    privacy: dict[str, str | float] | None
    """Of `privacy.kind`: epsilon of the run, of a round alone, and of the grouping; delta; noise of a round."""

    def total(self, name: str) -> int:
        """Return the sum of `messages`, `down` or `up` over the whole run."""
        return sum(part.times * int(getattr(part, name)) for part in self.parts)


def plan_of(config: Config) -> Plan:
    """Return the plan of an experiment."""
    nodes = own_nodes(config)
    # Refused here as before a run.
    workers = num_workers(config.workers, len(nodes) or config.num_clients)
    own = agree_here(config, nodes)
    config = own.config
    task = build_task(config, own.table)
    check_own_clients(config, len(nodes))
    check_device(config, nodes)
    strategy, models, _ = build_checked(config, task)
    for line in own.lines:
        say(f"florets: {line}", sys.stderr)
    clients = len(nodes) or config.num_clients
    one = sum(len(array.data) for array in models.one(0).values())
    each_model = one * models.count
    participants = sampled_of(config.strategy.settings.fraction_train, clients)
    tested = participants if config.eval_clients == "participants" else clients
    rounds = strategy.rounds_before + config.num_rounds
    parts = [
        Part("round", rounds, participants, participants * one, participants * one),
        Part("test", -(-rounds // config.eval_every), tested, tested * one, 0),
    ]
    ledger, masked = strategy.protect(config.num_rounds), None
    if config.secure_aggregation:
        masked = _masked(rounds, participants, models.count, one, models.layout.size)
        if strategy.is_frozen:
            parts[0], masked = masked, None
    if config.loss_matrix and not config.privacy.is_local:
        parts.append(Part("loss matrix", 1, clients, clients * each_model, 0))
    samples = _mean_samples(task, nodes, clients)
    client = samples + each_model + _ADAM_COPIES * one
    # Averages are taken in float64.
    server = 3 * each_model + participants * one
    return Plan(
        experiment=config.experiment,
        strategy=find_strategy(config.strategy.name).label,
        seed=config.seed,
        clients=clients,
        models=models.count,
        parameters=models.layout.size,
        model_bytes=one,
        rounds=rounds,
        parts=tuple(parts),
        most_down=sum(p.times * p.down for p in parts[1:]) + rounds * participants * each_model,
        memory={
            "server": server,
            "client": client,
            "in_process": server + clients * samples + workers * (each_model + _ADAM_COPIES * one),
        },
        masked=masked,
        privacy=None if ledger is None else ledger.planned,
    )


def _masked(rounds: int, participants: int, groups: int, one: int, parameters: int) -> Part:
    """Return the round of groups of equal size whose updates are masked, with keys, shares and unmasking."""
    down, up = protocol_bytes(max(LEAST, round(participants / groups)))
    # Integers of 64 bits in one array, with loss and weight.
    masked = 8 * (parameters + 2) + _ARRAY_HEAD
    return Part("masked round", rounds, 4 * participants, participants * (one + down), participants * (masked + up))


def _mean_samples(task: Task, nodes: Sequence[dict[str, Any]], clients: int) -> int:
    """Return the bytes of a client's samples, the mean over some clients."""
    sizes = []
    for client in {round(place * (clients - 1) / _SAMPLED) for place in range(_SAMPLED + 1)}:
        number = client
        if nodes:
            node, number = nodes[client], 0
            of_client = task_of(node, task.spec)
        else:
            of_client = task
        try:
            held = vars(of_client.client(number))
        except ValueError as error:
            whose = f"client {nodes[client]['client-id']}: " if nodes else ""
            raise ConfigError(f"{whose}{error}") from None
        sizes.append(sum(getattr(value, "nbytes", 0) for value in held.values()))
    return sum(sizes) // len(sizes)


def lines(plan: Plan) -> list[str]:
    """Return what the terminal shows."""
    table = [["each time", "times", "messages", "down", "up"]]
    table += [[p.name, str(p.times), str(p.messages), size(p.down), size(p.up)] for p in plan.parts]
    table.append(["total", "", str(plan.total("messages")), size(plan.total("down")), size(plan.total("up"))])
    lines = [
        f"{plan.experiment}, {plan.strategy}, seed {plan.seed}: {counted(plan.clients, 'client')}, "
        f"{counted(plan.models, 'model')} of {number(plan.parameters)} parameters ({size(plan.model_bytes)} each), "
        f"{counted(plan.rounds, 'round')}",
        "",
        markdown_table(table),
        "",
    ]
    if plan.models > 1:
        lines.append(
            f"If all {plan.models} models went to every participant in each round, the total would be "
            f"{size(plan.most_down)} down."
        )
    if (masked := plan.masked) is not None:
        lines.append(
            f"Once groups are frozen, a round is masked: {masked.messages} messages, {size(masked.down)} "
            f"down, {size(masked.up)} up."
        )
    if (spent := plan.privacy) is not None:
        lines.append(f"Privacy ({spent['kind']}): epsilon {spent['epsilon']:g} (delta {spent['delta']:.2g}) in all.")
        if "noise" in spent:
            grouping = f", the search for groups {spent['grouping']:.3g}" if spent["grouping"] else ""
            noise = f"noise of {spent['noise']:.3g} x privacy.clip"
            lines[-1] += f" A round alone costs {spent['round']:.3g}{grouping}, with {noise}."
    lines.append(
        f"Memory of models and data, about: {size(plan.memory['in_process'])} in process; "
        f"{size(plan.memory['server'])} the server alone, {size(plan.memory['client'])} a client of its own."
    )
    return lines


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    overrides = [text for text in arguments if text not in _OPTIONS]
    if wrong := [text for text in overrides if text.startswith("-")]:
        raise ConfigError(f"{wrong[0]}: florets plan has no such option ({', '.join(_OPTIONS)}).")
    caller = Path.cwd()
    import_from(caller)
    config = one_run.prepare(overrides, caller)
    if "--partition" in arguments:
        _show_partition(config, overrides)
        return 0
    for line in lines(plan_of(config)):
        say(line)
    return 0


def _show_partition(config: Config, overrides: Sequence[str]) -> None:
    """Print who holds which samples, and draw it."""
    nodes = own_nodes(config)
    own = agree_here(config, nodes)
    config = own.config
    task = build_task(config, own.table)
    try:
        if nodes:
            held = partition.holdings_of_nodes([task_of(node, task.spec) for node in nodes], nodes)
        else:
            held = partition.holdings_of(task)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    about = f"{config.task.data} shared out by {config.task.partition}, {config.experiment}, seed {config.seed}"
    say("\n".join([about, *own.lines, ""]))
    for name, value, note in partition.tiles_of(held):
        say(f"{name:20s}{value}{f' ({note})' if note else ''}")
    say(f"\n{markdown_table(partition.cluster_rows(held))}")
    folder = Path(config.results_dir) / "partitions" / run_folder(config, overrides)
    with private(bool(nodes)):
        folder.mkdir(parents=True, exist_ok=True)
        partition.draw_holdings(held, folder / "partition.png")
    say(f"\nEach client: {folder / 'partition.png'}")
