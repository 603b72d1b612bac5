"""The dry run of `florets plan`: the real strategy, round by round, with clients most of whom repeat others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import ArrayRecord

from florets.conf.schema import Config
from florets.conf.validate import check_own_clients
from florets.engines.local_grid import NodeConfig
from florets.engines.own_nodes import check_device, own_nodes
from florets.engines.pool import ClientSide
from florets.server_app.build import build_checked, build_task
from florets.server_app.data_agreement import agree_here
from florets.server_app.final_models import loss_matrix
from florets.server_app.plan.memory import ProcessMemory
from florets.server_app.plan.replicas import Exchange, ReplicaGrid, Seen, representative_nodes, representatives
from florets.strategies.base.report import Client, RoundReport
from florets.strategies.base.strategy import Strategy
from florets.task.task import Task
from florets.task.wire import kinds


@dataclass(frozen=True)
class PlannedRound:
    """A round of the dry run.

    Attributes
    ----------
    phase
        As the strategy calls it.
    exchanges
        The algorithm's own.
    test
        The test's; None in a round without one.
    server_seconds
        Wall time outside of exchanges.
    """

    phase: str
    exchanges: tuple[Exchange, ...]
    test: Exchange | None
    server_seconds: float

    @property
    def like(self) -> tuple[object, ...]:
        """The same for rounds of one kind."""
        return (self.phase, *(exchange.kinds for exchange in self.exchanges))


@dataclass(frozen=True)
class DryRun:
    """What a dry run found.

    Attributes
    ----------
    num_rounds
        Of the whole run; `rounds` may be fewer.
    num_clients, num_models, num_parameters
        Of the run as it begins.
    introductions, rounds, loss_matrix
        Its exchanges: those of the start, of very many clients several; those of the rounds; and that of the end,
        where there is one.
    seen
        The largest messages and needs.
    data_bytes
        Samples of a client, on average.
    computed
        Clients that computed.
    peak, start
        Memory of this process at most, and before it had any data; None where the system does not tell.
    """

    num_rounds: int
    num_clients: int
    num_models: int
    num_parameters: int
    model_bytes: int
    introductions: tuple[Exchange, ...]
    rounds: tuple[PlannedRound, ...]
    loss_matrix: Exchange | None
    seen: Seen
    data_bytes: float
    computed: int
    peak: int | None
    start: int | None


def dry_run(config: Config, side: ClientSide, seconds: float) -> DryRun:
    """Run an experiment dry.

    Parameters
    ----------
    config
        The experiment.
    side
        The ClientApp.
    seconds
        After so many the rounds end, with the one that is under way; the second is always run. Sharing out the data
        and the introductions come before.

    Raises
    ------
    ConfigError
        If the experiment cannot be run.
    FederationError
        If its clients fail.
    """
    memory = ProcessMemory()
    nodes = own_nodes(config)
    own = agree_here(config, nodes)
    config = own.config
    task = build_task(config, own.table)
    check_own_clients(config, len(nodes))
    check_device(config, nodes)
    strategy, models, settings = build_checked(config, task)
    numbers = representative_nodes(len(nodes)) if nodes else representatives(task)
    _follow_representatives(strategy, numbers)
    grid = ReplicaGrid(side, _node_configs(config, nodes, numbers), numbers, memory)
    grid.choose_blocks(config, task)
    grid.share(task)
    strategy.federation.refresh(grid, settings)
    introductions = tuple(grid.take_exchanges())
    rounds: list[PlannedRound] = []
    start = lap = time.perf_counter()
    in_exchanges = grid.seen.seconds

    def on_round(report: RoundReport, _: ArrayRecord) -> bool:
        nonlocal lap, in_exchanges
        now = time.perf_counter()
        server = now - lap - (grid.seen.seconds - in_exchanges)
        rounds.append(_planned(report, grid.take_exchanges(), server))
        lap, in_exchanges = time.perf_counter(), grid.seen.seconds
        return len(rounds) > 1 and now - start > seconds

    total = strategy.first_rounds + config.num_rounds
    strategy.start(grid, models.record, config.num_rounds, train_config=settings, on_round=on_round)
    at_end = grid.take_exchanges()
    if at_end and rounds[-1].test is None:
        # The last round of a run is tested; the dry run has ended early, or it tests at the end.
        rounds[-1] = replace(rounds[-1], test=at_end[-1])
    if config.loss_matrix:
        loss_matrix(
            strategy, strategy.final_models(strategy.context.models), config.loss_matrix_timeout, False, _quiet
        )
    matrix = grid.take_exchanges()
    used = sorted(set(numbers))
    samples = [_bytes_of(_task_of(task, nodes, number), 0 if nodes else number) for number in used]
    return DryRun(
        num_rounds=total,
        num_clients=len(numbers),
        num_models=models.count,
        num_parameters=models.layout.size,
        model_bytes=sum(len(array.data) for array in models.one(0).values()),
        introductions=introductions,
        rounds=tuple(rounds),
        loss_matrix=matrix[-1] if matrix else None,
        seen=grid.seen,
        data_bytes=sum(samples) / len(samples),
        computed=len(used),
        peak=memory.peak,
        start=memory.start,
    )


def _quiet(_: str) -> None:
    """Show nothing."""


def _planned(report: RoundReport, exchanges: Sequence[Exchange], server_seconds: float) -> PlannedRound:
    """Return a round; the test is its last exchange, and the strategy does not count its bytes."""
    test = None
    if sum(exchange.down for exchange in exchanges) > report.bytes_down:
        *exchanges, test = exchanges
    return PlannedRound(report.phase, tuple(exchanges), test, server_seconds)


def _task_of(task: Task, nodes: Sequence[NodeConfig], number: int) -> Task:
    """Return the task that a client's data belong to: the simulation's, or that of its own node."""
    if not nodes:
        return task
    return Task(
        task.spec.at_node(
            str(nodes[number]["data-dir"]), None if (rows := nodes[number].get(kinds.ROWS_OF)) is None else str(rows)
        )
    )


def _bytes_of(task: Task, number: int) -> int:
    """Return the bytes of a client's samples."""
    return sum(getattr(value, "nbytes", 0) for value in vars(task.client(number)).values())


def _follow_representatives(strategy: Strategy[Any, Any], numbers: Sequence[int]) -> None:
    """Where clients' data change, let the server know each one's representative's."""
    known = strategy.federation.known_at
    if known is None:
        return

    def known_at(client: Client, server_round: int) -> Client:
        asked = replace(client, number=numbers[client.number])
        return replace(known(asked, server_round), number=client.number)

    strategy.federation.known_at = known_at


def _node_configs(config: Config, nodes: Sequence[NodeConfig], numbers: Sequence[int]) -> list[NodeConfig]:
    """Return for each node whose data it has here, and its own name."""
    # Only in one process do clients keep models from one message to the next.
    place: NodeConfig = {kinds.ONE_PROCESS: False} if config.engine == "flwr" else {}
    if nodes:
        return [
            {**nodes[number], "client-id": node["client-id"], **place}
            for node, number in zip(nodes, numbers, strict=True)
        ]
    digits = len(str(len(numbers) - 1))
    return [
        {"partition-id": number, "client-id": str(client).zfill(digits), **place}
        for client, number in enumerate(numbers)
    ]
