"""`florets plan`: bytes and memory of a run before it is run, and who holds which samples."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from florets.api import Typed
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.conf.validate import check_own_clients
from florets.engines.engine import num_workers
from florets.engines.own_nodes import check_device, own_nodes
from florets.reports import partition
from florets.reports.console import counted, number, say, size
from florets.reports.tables import markdown_table
from florets.server_app.build import build_checked, build_task
from florets.server_app.data_agreement import agree_here, task_of
from florets.strategies.registry import find_strategy
from florets.strategies.settings import sampled_of
from florets.studies import one_run
from florets.task.wire.masking import LEAST, protocol_bytes

_ADAM_COPIES = 4
"""Copies of a model that local training holds: parameters, gradients, and Adam's two means."""
_ARRAY_HEAD = 128
"""Bytes of an array besides its values."""


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
    """Figures of a run before it is run: bytes of a model and of rounds, epsilon of the run and of a round."""

    title: str
    clients: int
    models: int
    parameters: int
    one: int
    participants: int
    parts: tuple[Part, ...]
    masked: Part | None
    privacy: dict[str, str | float] | None

    def total(self, name: str) -> int:
        """Return the sum of `messages`, `down` or `up` over the whole run."""
        return sum(part.times * int(getattr(part, name)) for part in self.parts)

    @property
    def most_down(self) -> int:
        """Bytes to clients if all models went to every participant in each round."""
        rounds, *others = self.parts
        every = rounds.times * self.participants * self.models * self.one
        return every + sum(part.times * part.down for part in others)

    @property
    def lines(self) -> list[str]:
        """What the terminal shows."""
        table = [["each time", "times", "messages", "down", "up"]]
        table += [[p.name, str(p.times), str(p.messages), size(p.down), size(p.up)] for p in self.parts]
        table.append(["total", "", str(self.total("messages")), size(self.total("down")), size(self.total("up"))])
        lines = [
            f"{self.title}: {counted(self.clients, 'client')}, {counted(self.models, 'model')} of "
            f"{number(self.parameters)} parameters ({size(self.one)} each), {counted(self.parts[0].times, 'round')}",
            f"\n{markdown_table(table)}\n",
        ]
        if self.models > 1:
            lines.append(
                f"If all {self.models} models went to every participant in each round, the total would be "
                f"{size(self.most_down)} down."
            )
        if (masked := self.masked) is not None:
            lines.append(
                f"Once groups are frozen, a round is masked: {masked.messages} messages, {size(masked.down)} down, "
                f"{size(masked.up)} up."
            )
        if (spent := self.privacy) is not None:
            text = f"Privacy ({spent['kind']}): epsilon {spent['epsilon']:g} (delta {spent['delta']:.2g}) in all."
            if "noise" in spent:
                grouping = f", the search for groups {spent['grouping']:.3g}" if spent["grouping"] else ""
                noise = f"noise of {spent['noise']:.3g} x privacy.clip"
                text += f" A round alone costs {spent['round']:.3g}{grouping}, with {noise}."
            lines.append(text)
        # Averages are taken in float64.
        server = (3 * self.models + self.participants) * self.one
        client = (self.models + _ADAM_COPIES) * self.one
        lines.append(f"Memory of models, about: {size(server)} on the server, {size(client)} on a client.")
        return lines


def plan_of(config: Config) -> Plan:
    """Return the plan of an experiment."""
    nodes = own_nodes(config)
    clients = len(nodes) or config.num_clients
    # Refused here as before a run.
    num_workers(config.workers, clients)
    own = agree_here(config, nodes)
    config = own.config
    task = build_task(config, own.table)
    check_own_clients(config, len(nodes))
    check_device(config, nodes)
    strategy, models, _ = build_checked(config, task)
    for line in own.lines:
        say(f"florets: {line}", sys.stderr)
    one = sum(len(array.data) for array in models.one(0).values())
    participants = sampled_of(config.strategy.settings.fraction_train, clients)
    tested = participants if config.eval_clients == "participants" else clients
    rounds = strategy.settings.rounds_before + config.num_rounds
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
        parts.append(Part("loss matrix", 1, clients, clients * one * models.count, 0))
    return Plan(
        f"{config.experiment}, {find_strategy(config.strategy.name).label}, seed {config.seed}",
        clients,
        models.count,
        models.layout.size,
        one,
        participants,
        tuple(parts),
        masked,
        None if ledger is None else ledger.planned,
    )


def _masked(rounds: int, participants: int, groups: int, one: int, parameters: int) -> Part:
    """Return the round of groups of equal size whose updates are masked, with keys, shares and unmasking."""
    down, up = protocol_bytes(max(LEAST, round(participants / groups)))
    # Integers of 64 bits in one array, with loss and weight.
    masked = 8 * (parameters + 2) + _ARRAY_HEAD
    return Part("masked round", rounds, 4 * participants, participants * (one + down), participants * (masked + up))


def plan(experiment: Typed, /, *, partition: bool = False, **keys: Any) -> None:
    """Estimate what a run sends and what memory its models need; with --partition show who holds which samples.

    Nothing is trained. Bytes are those of models and masks, without settings, losses and what Flower adds, in a run
    in which every client replies. A round sends each participant one model, or all K if it chooses among them by
    their losses (IFCA in each round, CLoVE until its clusters are stable): a line gives that total. Memory comes on
    top of the data and of what Python, PyTorch and Flower take. With privacy.kind epsilon and delta are given.

    Parameters
    ----------
    partition : bool
        Show instead which clusters hold which samples. Skew is how far a client's labels are from those of all
        clients together (and of its cluster), as the mean total variation distance: 0 for equal proportions, near 1
        where clients share no label. Values of a regression count as tenths of all clients' values, from low to high.
    """
    config = one_run.prepare(experiment, Path.cwd())
    if partition:
        _show_partition(config)
        return
    for line in plan_of(config).lines:
        say(line)


def _show_partition(config: Config) -> None:
    """Print who holds which samples."""
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
