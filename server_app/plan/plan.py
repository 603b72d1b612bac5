"""From a dry run to the figures of the whole run: rounds that it left out, totals, time and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from florets.server_app.plan.dry_run import DryRun, PlannedRound
from florets.server_app.plan.replicas import Exchange

ADAM_COPIES = 4
"""Copies of a model that local training holds: parameters, gradients, and Adam's two means."""


@dataclass(frozen=True)
class Part:
    """Like rounds of a run, or what comes beside them.

    Attributes
    ----------
    name
        Phase of the rounds.
    asks
        Kinds of messages, exchange by exchange.
    times, first
        How many rounds, and which is the first; 0 where it is no round.
    messages, down, up
        Messages to clients and bytes to and from them, each time.
    client_seconds, server_seconds
        The clients' work, one after the other, and the server's, each time.
    one_client
        Seconds that one client works, on average, over the exchanges of one time.
    """

    name: str
    asks: tuple[str, ...]
    times: int
    first: int
    messages: float
    down: float
    up: float
    client_seconds: float
    server_seconds: float
    one_client: float


@dataclass(frozen=True)
class Plan:
    """All that is known of a run before it is run.

    Attributes
    ----------
    parts
        In their order; their sums are the run's.
    dry_rounds
        Rounds that were run dry; the rest goes on as these ended.
    timed_once
        Whether a kind of round that is repeated was run dry once alone: its time has what only the first run loads.
    most_down, most_up
        Bytes if all rounds were of the costliest kind, as where clusters never become stable.
    server_memory, local_memory, client_memory
        Bytes that the server alone needs, that a run in one process needs, and that one client's process needs; None
        where the system does not tell.
    """

    parts: tuple[Part, ...]
    num_rounds: int
    dry_rounds: int
    timed_once: bool
    most_down: float
    most_up: float
    server_memory: float | None
    local_memory: float | None
    client_memory: float | None

    def total(self, name: str) -> float:
        """Return the sum of one of the parts' figures over the run."""
        return float(sum(part.times * getattr(part, name) for part in self.parts))

    @property
    def exchanges(self) -> int:
        """Exchanges of the whole run."""
        return sum(part.times * len(part.asks) for part in self.parts)

    def local_seconds(self, workers: int) -> float:
        """Return how long a run takes in process, with so many workers; handing messages to these is not in it."""
        return self.total("client_seconds") / workers + self.total("server_seconds")

    @property
    def deployed_seconds(self) -> float:
        """How long a run takes where each client has a machine like this one, without Flower's own time."""
        return self.total("one_client") + self.total("server_seconds")


def plan_of(found: DryRun, eval_every: int) -> Plan:
    """Return the figures of the run that a dry run stands for.

    Parameters
    ----------
    found
        The dry run.
    eval_every
        Rounds between two tests.
    """
    rounds = _all_rounds(found.rounds, found.num_rounds)
    dry, times = (Counter(each.like for each in some) for some in (found.rounds, rounds))
    parts = [_beside("introductions", found.introductions), *_of_rounds(rounds)]
    tested = [each.test for each in found.rounds if each.test is not None]
    if tested:
        due = [n for n in range(1, found.num_rounds + 1) if n % eval_every == 0 or n == found.num_rounds]
        parts.append(_part("test", [(exchange,) for exchange in tested], [0.0] * len(tested), len(due)))
    if found.loss_matrix is not None:
        parts.append(_beside("loss matrix", [found.loss_matrix]))
    costly = max(_of_rounds(rounds), key=lambda part: part.down + part.up)
    beside = [part for part in parts if not part.first]
    server, local, client = _memory(found, rounds)
    return Plan(
        parts=tuple(parts),
        num_rounds=found.num_rounds,
        dry_rounds=len(found.rounds),
        timed_once=any(times[kind] > number == 1 for kind, number in dry.items()),
        most_down=found.num_rounds * costly.down + sum(part.times * part.down for part in beside),
        most_up=found.num_rounds * costly.up + sum(part.times * part.up for part in beside),
        server_memory=server,
        local_memory=local,
        client_memory=client,
    )


def period(kinds: Sequence[Hashable]) -> int:
    """Return the shortest number of rounds that a sequence of their kinds repeats at its end, at least twice."""
    for length in range(1, len(kinds) // 2 + 1):
        if kinds[-length:] == kinds[-2 * length : -length]:
            return length
    return 1


def _all_rounds(rounds: Sequence[PlannedRound], total: int) -> list[PlannedRound]:
    """Return all rounds: those left out repeat the last ones."""
    cycle = rounds[-period([each.like for each in rounds]) :]
    left_out = range(total - len(rounds))
    return [*rounds, *(cycle[number % len(cycle)] for number in left_out)]


def _of_rounds(rounds: Sequence[PlannedRound]) -> list[Part]:
    kinds: dict[Hashable, list[int]] = {}
    for place, each in enumerate(rounds):
        kinds.setdefault(each.like, []).append(place)
    parts = []
    for places in kinds.values():
        alike = [rounds[place] for place in places]
        part = _part(
            alike[0].phase, [each.exchanges for each in alike], [r.server_seconds for r in alike], len(places)
        )
        parts.append(replace(part, first=places[0] + 1))
    return parts


def _beside(name: str, alike: Sequence[Exchange]) -> Part:
    return _part(name, [(exchange,) for exchange in alike], [0.0] * len(alike), len(alike))


def _part(name: str, alike: Sequence[Sequence[Exchange]], server_seconds: Sequence[float], times: int) -> Part:
    """Return the part that several like rounds make: means of what is counted, medians of what is timed."""
    return Part(
        name=name,
        asks=tuple(" or ".join(exchange.kinds) for exchange in alike[0]),
        times=times,
        first=0,
        messages=mean(sum(each.messages for each in exchanges) for exchanges in alike),
        down=mean(sum(each.down for each in exchanges) for exchanges in alike),
        up=mean(sum(each.up for each in exchanges) for exchanges in alike),
        # The first round also builds what the others use.
        client_seconds=median(sum(each.client_seconds for each in exchanges) for exchanges in alike),
        server_seconds=median(server_seconds),
        one_client=median(sum(each.client_seconds / each.messages for each in exchanges) for exchanges in alike),
    )


def _memory(found: DryRun, rounds: Sequence[PlannedRound]) -> tuple[float | None, float | None, float | None]:
    """Return the memory of the server, of a run in one process, and of one client."""
    if found.peak is None or found.start is None:
        return None, None, None
    seen = found.seen
    # A replica's reply shares the arrays of another; a client of its own would send its own.
    server = found.peak + seen.up_at_once
    asked = sum(exchange.messages for each in rounds for exchange in each.exchanges)
    holding = min(found.num_clients, max(len(seen.asked), asked))
    local = server + max(0, holding - found.computed) * found.data_bytes
    working = max(seen.growth or 0, ADAM_COPIES * found.model_bytes)
    client = found.start + found.data_bytes + seen.down_at_once + seen.reply + working
    return server, local, client
