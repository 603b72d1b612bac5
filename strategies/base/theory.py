"""Theory of an algorithm: what its theorems require of an experiment and promise, in rows for `florets theory`."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.settings import Experiment

FAILS = 0.05
"""The probability delta with which a statement may fail."""
NOT_KNOWN = "not known: the data have no true models"
OF_LINEAR = "not known: only for linear models, the square loss and, of two_phase, train=sgd"
_RULES: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "exactly": operator.eq,
}


class Row(NamedTuple):
    """A quantity: what theory says, by which rule, and its value here; None: not known, or not run."""

    quantity: str
    rule: str
    theory: float | None
    here: float | None
    holds: bool | None
    source: str


def row(quantity: str, here: float | None, source: str, rule: str = "", theory: float | None = None) -> Row:
    """Return a row; whether it holds follows from the rule."""
    holds = None if not rule or theory is None or here is None else bool(_RULES[rule](here, theory))
    return Row(quantity, rule, theory, here, holds, source)


@dataclass(frozen=True)
class Case:
    """An experiment with its data, and figures of its run.

    Attributes
    ----------
    run, settings
        Keys of the experiment, and the strategy's own.
    clusters, sizes
        True cluster and training samples of each client.
    models, true_models
        The initial models (N, R), with those that the strategy adds, and those that drew the data (K, R).
    covariance, option
        Bounds on the eigenvalues of the inputs' covariance, and an option of the data by its name and a default.
    inputs, losses, gradients
        Of each client: its inputs (n_i, d), its losses of all initial models (M, N); the gradients of the clients on
        the initial models (N, M, R), of a batch or, for None, of all samples.
    errors, error, ari, found
        Of the run: rounds with their distance from the true models, the last of these, the last ARI, and the round
        in which groups were found first, infinite for never; None and empty where it was not run.
    """

    run: Experiment
    settings: Any
    clusters: IntArray
    sizes: IntArray
    models: FloatArray
    true_models: FloatArray | None
    covariance: Callable[[], tuple[float, float]]
    option: Callable[[str, Any], Any]
    inputs: Callable[[], Iterator[FloatArray]]
    losses: Callable[[], FloatArray]
    gradients: Callable[[int | None], FloatArray]
    errors: Sequence[tuple[int, float]]
    error: float | None
    ari: float | None
    found: float | None

    @property
    def num_clusters(self) -> int:
        """The true clusters."""
        return len(set(self.clusters.tolist()))

    def recovery(self, source: str, theory: float | None = None) -> Iterator[Row]:
        """Return whether there are as many models as true groups, and how well the run found these."""
        models = None if self.run.k == "auto" else self.run.k
        yield row("models K", models, "groups; k=auto: not known", "exactly", self.num_clusters)
        yield row("first round with ARI 1", self.found, source, "exactly", theory)
        yield row("ARI at the end", self.ari, "run")
