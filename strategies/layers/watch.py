"""Watch: detects and moves clients of frozen groups whose training losses depart from their group's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.layer import Layer
from florets.strategies.base.models import Updates
from florets.strategies.base.report import Detail
from florets.strategies.base.round import Round
from florets.strategies.core import FloatArray
from florets.task.wire.replies import Update

WATCH = "watch"
"""The detail of a round in which clients departed from their clusters, or were asked again."""

LENGTH = 6
"""Rounds of a client, and of a cluster, that define what is usual."""
LEAST = 3
"""Rounds that a client has trained its model before it is watched, and clients that tell a cluster's change."""
FLOOR = 0.05
"""Least spread of the logarithms of losses: below 5 % no change is meant."""
FITS = 1 / 3
"""Part of the rise of a client's loss that a model must take back to fit the client."""

_SMALLEST = 1e-12


@dataclass
class Departure:
    """A client whose loss has departed from its cluster's.

    Attributes
    ----------
    model
        Its cluster's, when it departed.
    expected
        Logarithm of the loss that it would have if nothing had changed.
    together
        Whether its whole cluster departed with it.
    due
        Rounds of its own until it is asked for a loss vector.
    asked
        How often it has been asked; `unfit` counts the last consecutive times without a fitting model.
    """

    model: int
    expected: float
    together: bool
    due: int = 0
    asked: int = 0
    unfit: int = 0

    def answered(self, losses: FloatArray, model: int) -> None:
        """Note a loss vector (K,), and whether its best model fits; `model` is the one that the client has."""
        logs = np.log(np.clip(losses, _SMALLEST, None))
        rise = max(float(logs[model]) - self.expected, 0.0)
        self.unfit = self.unfit + 1 if float(logs.min()) > self.expected + (1 - FITS) * rise + FLOOR else 0
        self.asked += 1
        # 1, 2, 4, 8 rounds after it departed: what no model fits costs little.
        self.due = 2 ** max(self.asked - 1, 0)


@dataclass(eq=False)
class Watched:
    """Usual training losses of the clients of frozen groups, and who has departed from them.

    A client's change is the logarithm of its loss less the median of its last ones; its cluster's change is the
    median of its members'. What is left of a client's change without its cluster's is compared with its usual
    values, by all clients' median absolute deviation. A cluster that as a whole changes unlike the others is no
    reference for its members: they are compared with the other clusters, and where most clients change as never
    before, with the usual change of all.

    Attributes
    ----------
    levels
        By client: logarithms of its last losses with its current model.
    excesses
        By client: its changes without its cluster's, of the same rounds.
    shifts
        By model: its cluster's last changes without the other clusters'.
    commons
        Last changes of all clients together.
    departed
        Clients whose loss has departed, until it is as before or they have moved.
    fresh
        Those of them that departed in this round.
    details
        What the round's report says.
    """

    levels: dict[str, list[float]] = field(default_factory=dict)
    excesses: dict[str, list[float]] = field(default_factory=dict)
    shifts: dict[int, list[float]] = field(default_factory=dict)
    commons: list[float] = field(default_factory=list)
    departed: dict[str, Departure] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    details: dict[str, list[str] | bool] = field(default_factory=dict)

    def observe(self, updates: Sequence[tuple[str, Update]], threshold: float) -> None:
        """Add the model and training loss of each of a round's clients.

        `threshold` is the robust z-score above which a change is unusual.
        """
        logs = {key: (update.model, math.log(max(update.train_loss, _SMALLEST))) for key, update in updates}
        changes = {
            key: (model, level - float(np.median(self.levels[key])))
            for key, (model, level) in logs.items()
            if len(self.levels.get(key, ())) >= LEAST
        }
        references, together = self._references(changes, threshold)
        excesses = {key: change - references[model] for key, (model, change) in changes.items()}
        bound = threshold * _spread([*self.excesses.values(), list(excesses.values())])
        self.fresh = set()
        for key, (model, level) in logs.items():
            excess = excesses.get(key)
            if excess is None or excess <= bound:
                self._as_usual(key, level, excess)
            elif key in self.departed:
                self.departed[key].due -= 1
            else:
                self.departed[key] = Departure(model, level - excess, model in together)
                self.fresh.add(key)
        if found := sorted(key for key in logs if key in self.departed and not self.departed[key].asked):
            self.details["departed"] = found

    @property
    def away(self) -> set[str]:
        """Clients whose updates would harm their model: they departed in this round, or no model fits them."""
        return self.fresh | {key for key, departure in self.departed.items() if departure.unfit}

    def is_due(self, key: str) -> bool:
        """Say whether a client is to be asked for a loss vector."""
        return key in self.departed and self.departed[key].due <= 0

    def forget(self, key: str) -> None:
        """Forget the history of a client that has moved."""
        for known in (self.levels, self.excesses, self.departed):
            known.pop(key, None)

    def opens(self) -> bool:
        """Say whether clients that no model fits form a group: they departed together, or were asked twice."""
        unfit = [departure for departure in self.departed.values() if departure.unfit]
        lasting = [departure.model for departure in unfit if departure.together or departure.unfit > 1]
        return any(lasting.count(model) > 1 for model in set(lasting))

    def _as_usual(self, key: str, level: float, excess: float | None) -> None:
        if self.departed.pop(key, None) is not None:
            # What it has learned meanwhile is its usual loss from now on.
            self.levels.pop(key, None)
        self.levels[key] = [*self.levels.get(key, ()), level][-LENGTH:]
        if excess is not None:
            self.excesses[key] = [*self.excesses.get(key, ()), excess][-LENGTH:]

    def _references(
        self, changes: Mapping[str, tuple[int, float]], threshold: float
    ) -> tuple[dict[int, float], set[int]]:
        """Return the change by which each model's clients are judged, and the models whose cluster departed."""
        by_model: dict[int, list[float]] = {}
        for key, (model, change) in changes.items():
            # Who has departed already says nothing about its cluster.
            if key not in self.departed:
                by_model.setdefault(model, []).append(change)
        everybody = [change for of in by_model.values() for change in of]
        common = float(np.median(everybody)) if len(everybody) >= LEAST else 0.0
        usual = float(np.median(self.commons)) if len(self.commons) >= LEAST else common
        most = usual + threshold * _spread([[change - usual for change in self.commons]])
        own = {model: float(np.median(of)) for model, of in by_model.items() if len(of) >= LEAST}
        # What the others' change is taken for where more of them have departed than not.
        others = {
            model: _usual([level for other, level in own.items() if other != model] or [change], usual, most)
            for model, change in own.items()
        }
        shifts = {model: change - others[model] for model, change in own.items()}
        bound = threshold * _spread([*self.shifts.values(), list(shifts.values())])
        together = {model for model, shift in shifts.items() if shift > bound}
        rest = _usual([common], usual, most)
        references = {model: own.get(model, rest) for model, _ in changes.values()}
        for model, shift in shifts.items():
            if model in together:
                references[model] = others[model]
            else:
                self.shifts[model] = [*self.shifts.get(model, ()), shift][-LENGTH:]
        if everybody and common <= most:
            self.commons = [*self.commons, common][-LENGTH:]
        return references, together


class Watch(Layer):
    """Watches training losses once groups are frozen, moves clients that depart, and opens groups again.

    `threshold` is the robust z-score above which a change is unusual.
    """

    name = "watch"
    under_noise = True
    State = Watched

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def begin(self, r: Round) -> None:
        """Ask clients whose loss has departed for a loss vector and move them; open groups where new ones appear."""
        watched: Watched = self.kept(r)
        watched.details, watched.fresh = {}, set()
        if (frozen := r.strategy.frozen_clusters()) is None or frozen.by != "losses":
            return
        due = [client for client in r.participants if watched.is_due(client.key)]
        # One model alone leaves nowhere to move.
        if not due or r.models.count == 1:
            return
        assignment, moved = r.strategy.assignment, []
        for key, reply in r.losses(due, r.models).replies.ok:
            departure = watched.departed[key]
            departure.answered(reply.losses, assignment[key])
            best = int(np.argmin(reply.losses))
            # Whom no model fits stays, and is counted.
            if best != assignment[key] and not departure.unfit:
                assignment[key] = best
                moved.append(key)
        opened = watched.opens()
        for key in moved:
            watched.forget(key)
        watched.details = {"asked": [client.key for client in due], "moved": moved, "opened": opened}
        if opened:
            r.strategy.reopen()
            r.strategy.state.layers[self.name] = Watched(details=watched.details)

    def counted(self, updates: Updates, r: Round) -> Updates:
        """Return the updates without those of clients that are away, unless a model has no others."""
        if r.strategy.phase != "stable":
            return updates
        watched: Watched = self.kept(r)
        watched.observe(updates.updates, self.threshold)
        away = watched.away
        stayed = {update.model for key, update in updates.updates if key not in away}
        return Updates([(key, one) for key, one in updates.updates if key not in away or one.model not in stayed])

    def details(self, r: Round) -> Mapping[str, Detail]:
        """Return which clients departed, were asked and moved."""
        watched: Watched = self.kept(r)
        return {WATCH: dict(watched.details)} if watched.details else {}


def _usual(changes: Sequence[float], usual: float, most: float) -> float:
    """Return the median of some changes, or the usual one where that is larger than can be."""
    median = float(np.median(changes))
    return median if median <= most else usual


def _spread(kept: Iterable[list[float]]) -> float:
    """Return the robust standard deviation about 0 of all values that are kept, at least `FLOOR`."""
    values = [abs(value) for of in kept for value in of]
    return max(FLOOR, 1.4826 * float(np.median(values))) if values else FLOOR
