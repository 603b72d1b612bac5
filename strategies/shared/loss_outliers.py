"""CLoVE's treatment of outliers: clients whose losses are far above everybody else's."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.outliers import equal_for_all_models, loss_scale, outlier_losses, worst_losses

PATIENCE = 2
"""Rounds running in which an outlier is rejected before it is clustered with its losses clipped."""
CLIP = 1.25
"""Bound to which losses are clipped, in worst losses of the median client.

Near enough that a lone liar does not take a cluster from groups that lie apart (1.5 lets it, on digits), and far
enough that a group in another unit stands apart before its models have learned anything.
"""

FAR = "rejected as an outlier: its losses are far above the others' (strategy.outlier_loss)"
EQUAL = f"{FAR} and equal for all models"


@dataclass(eq=False)
class Outliers:
    """Which clients are outliers, and since when.

    In one round a broken client and one whose data are in another unit (targets 20 times as large make squared errors
    400 times as large) look alike; over several they differ. A passing fault is over after `PATIENCE` rounds, and of
    the lasting ones most report the same loss for every model, which no data give and no clustering can use.

    So an outlier is rejected `PATIENCE` rounds running and then clustered, with all vectors of that round clipped:
    its own and those of clients just below the bound alike. A vector that is equal for all models stays rejected.
    Several clients that invent another vector in every round can do what false losses of an ordinary size do.

    Attributes
    ----------
    scale
        Largest `loss_scale` of the run so far.
    rejected
        By client: rounds running in which it was rejected.
    admitted
        Outliers that are clustered.
    """

    scale: float = 0.0
    rejected: dict[str, int] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)

    def measure(self, losses: Sequence[FloatArray]) -> float:
        """Take a round's loss vectors (K,) into the scale; return what they are clipped to where that is needed."""
        present = loss_scale(np.stack(losses)) if losses else 0.0
        self.scale = max(self.scale, present)
        return CLIP * (present or self.scale)

    def reject(self, reports: Sequence[tuple[str, FloatArray]], factor: float | None) -> dict[str, set[str]]:
        """Return the clients that are not to be clustered, by reason.

        Parameters
        ----------
        reports
            Key and loss vector (K,) of each client, infinite where a model diverged.
        factor
            An outlier's best loss is more than this many times the median client's worst; None rejects nobody.
        """
        # With one model there is nothing to cluster, and nobody to be kept from it.
        if factor is None or not reports or len(reports[0][1]) == 1:
            return {}
        keys, losses = [key for key, _ in reports], np.stack([vector for _, vector in reports])
        far, equal = self._far(keys, losses, factor), equal_for_all_models(losses)
        found: dict[str, set[str]] = {}
        for row, key in enumerate(keys):
            if not far[row]:
                self.rejected.pop(key, None)
                self.admitted.discard(key)
            elif equal[row] or (key not in self.admitted and self.rejected.get(key, 0) < PATIENCE):
                self.rejected[key] = self.rejected.get(key, 0) + 1
                found.setdefault(EQUAL if equal[row] else FAR, set()).add(key)
            else:
                self.rejected.pop(key, None)
                self.admitted.add(key)
        return found

    def limit(self, keys: Iterable[str], limit: float) -> float:
        """Return what the vectors of these clients are clipped to: infinity unless an outlier is among them."""
        return math.inf if self.admitted.isdisjoint(keys) else limit

    def _far(self, keys: Sequence[str], losses: FloatArray, factor: float) -> BoolArray:
        # Below the bound by a margin only: a client must not come and go while its models learn.
        inside = np.array([key in self.admitted for key in keys], dtype=bool)
        stays = inside & (worst_losses(losses) > math.sqrt(factor) * self.scale)
        mask: BoolArray = outlier_losses(losses, self.scale, factor) | stays
        return mask
