"""Quantities of a run's rounds that figures and pages show, and how their values are written."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from florets.reports.summary import Curve, Curves, Figure

Form = Literal["index", "fraction", "error", "number"]
"""index: 0 is chance and 1 the best; fraction: 1 is the best; error: a fraction, 0 the best; number: no limits."""


class Quantity(NamedTuple):
    """Title and form of a quantity, the figure with its spread over clients, and the one that it is compared with."""

    title: str
    form: Form = "number"
    spread: Figure | None = None
    compared: Figure | None = None

    @property
    def at_most(self) -> float | None:
        """Greatest value; None where there is none, or none that is worth aiming at."""
        return 1.0 if self.form in ("index", "fraction") else None

    def text(self, value: float) -> str:
        """Return a value as figures and pages show it."""
        if self.form in ("fraction", "error"):
            return f"{value:.1%}"
        return f"{value:.2f}" if self.form == "index" else f"{value:.3g}"


QUANTITIES: dict[Curve, Quantity] = {
    "ari": Quantity("Clusters recovered: adjusted Rand index", "index", compared="ari_participants"),
    "accuracy": Quantity("Test accuracy, mean over clients", "fraction", "accuracy_std", "tuned_accuracy"),
    "loss": Quantity("Test loss, mean over clients", "number", "loss_std", "tuned_loss"),
    "model_error": Quantity("Distance from the true models, the largest"),
    "cluster_error": Quantity("Test error of the best model for each true cluster, mean", "error"),
    "cluster_loss": Quantity("Test loss of the best model for each true cluster, mean"),
}


def known_quantities(runs: Sequence[Sequence[Curves]], wanted: Sequence[Curve] = ()) -> list[Curve]:
    """Return which of the `wanted` quantities to show of runs, or what is worth it: ARI, accuracy or else loss, ...

    It is what was measured more than once in a run; without any all that was measured: pages give the values.
    """
    # A loss says little next to the figure of the same test that people read.
    said_by: dict[Curve, Curve] = {"loss": "accuracy", "cluster_loss": "cluster_error"}
    counts: dict[Curve, int] = {}
    for key in wanted or QUANTITIES:
        count = max([sum(line[key] is not None for line in run) for run in runs], default=0)
        if count and (wanted or said_by.get(key) not in counts):
            counts[key] = count
    return [key for key in counts if counts[key] > 1] or list(counts)
