"""Quantities of a run's rounds that figures and pages show, and how their values are written."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from florets.reports.summary import RoundLine

Form = Literal["index", "fraction", "error", "number"]
"""index: 0 is chance and 1 the best; fraction: 1 is the best; error: a fraction, 0 the best; number: no limits."""


class Quantity(NamedTuple):
    """Title and form of a quantity."""

    title: str
    form: Form = "number"

    @property
    def at_most(self) -> float | None:
        """Greatest value; None where there is none, or none that is worth aiming at."""
        return 1.0 if self.form in ("index", "fraction") else None

    def text(self, value: float) -> str:
        """Return a value as figures and pages show it."""
        if self.form in ("fraction", "error"):
            return f"{value:.1%}"
        return f"{value:.2f}" if self.form == "index" else f"{value:.3g}"


QUANTITIES = {
    "ari": Quantity("Clusters recovered: adjusted Rand index", "index"),
    "accuracy": Quantity("Test accuracy, mean over clients", "fraction"),
    "loss": Quantity("Test loss, mean over clients"),
    "model_error": Quantity("Distance from the true models, the largest"),
    "cluster_error": Quantity("Test error of the best model for each true cluster, mean", "error"),
    "cluster_loss": Quantity("Test loss of the best model for each true cluster, mean"),
}


def known_quantities(runs: Sequence[Sequence[RoundLine]]) -> list[str]:
    """Return what is worth showing of runs: ARI where it is known, accuracy or else loss, distance from the truth."""
    known = [key for key in QUANTITIES if any(line[key] is not None for run in runs for line in run)]
    # A loss says little next to the figure of the same test that people read.
    hidden = {second for first, second in (("accuracy", "loss"), ("cluster_error", "cluster_loss")) if first in known}
    return [key for key in known if key not in hidden]
