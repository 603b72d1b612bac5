"""`Budget`: what each client may spend and has spent of a run's privacy, and its file."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from florets.strategies.core.accountant import epsilon_of, level_of, usual_delta
from florets.strategies.coverage import Releases
from florets.strategies.settings import Privacy

BUDGET_FILE = "privacy.json"
"""File in a run's folder of what has been spent; written before each release."""
GROUPING = 0.2
"""Fraction of the budget (of the sum of squared noise levels) that is spent on grouping."""
_ROUNDING = 1e-9


@dataclass
class Budget:
    """What each client has spent (`spent`, of `total`), in squared noise levels, which add up exactly.

    Two federations are neighbours where one client's data are replaced by nothing: it still takes part, and adds 0 to
    every sum. `update` and `grouping` are what one round's update, and one release for grouping, cost. `most` is the
    epsilon of the client that has spent most, where it is no sum of levels (`layers.example_noise`).
    """

    epsilon: float
    delta: float
    total: float
    update: float
    grouping: float
    spent: dict[str, float] = field(default_factory=dict)
    most: float | None = None

    @classmethod
    def planned(cls, privacy: Privacy, releases: Releases, visits: int, clients: int) -> "Budget":
        delta = usual_delta(clients) if privacy.delta is None else privacy.delta
        epsilon = float(privacy.epsilon or 0.0)
        total, groupings = level_of(epsilon, delta) ** 2, releases.before + releases.each * visits
        share = GROUPING if groupings else 0.0
        return cls(
            epsilon, delta, total, (1 - share) * total / visits, share * total / groupings if groupings else 0.0
        )

    def affords(self, key: str, cost: float) -> bool:
        return self.spent.get(key, 0.0) + cost <= self.total * (1 + _ROUNDING)

    @property
    def reached(self) -> float:
        """Epsilon of the client that has spent most."""
        if self.most is not None:
            return self.most
        most = max(self.spent.values(), default=0.0)
        return min(epsilon_of(math.sqrt(most), self.delta), self.epsilon) if most else 0.0


def multiplier(cost: float) -> float:
    """Return the standard deviation of a release's noise, in sensitivities, from its cost."""
    if cost <= 0:
        raise ValueError(
            "a release that is not planned has no noise: declare what it asks for in Settings.asks, and in how many "
            "rounds in Settings.grouping_rounds"
        )
    return 1 / math.sqrt(cost)


def read_budget(path: Path) -> Budget:
    """Return a run's budget as last saved; raise ValueError if it cannot be read."""
    try:
        found = Budget(**json.loads(path.read_text(encoding="utf-8")))
        if not all(isinstance(one, float) and one >= 0 for one in found.spent.values()):
            raise ValueError("spent")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: cannot be read ({error}), so that it is not known what the run has spent of privacy.epsilon; "
            "start it anew"
        ) from None
    return found
