"""Settings of one-shot clustering."""

from dataclasses import dataclass
from typing import Literal

from florets.strategies.settings import Experiment, ManyModels
from florets.task.keys import setting


@dataclass(frozen=True)
class OneShotSettings(ManyModels):
    """Clients estimate models alone, k-means groups the estimates once, then FedAvg in each group."""

    estimate: Literal["train", "least_squares"] = setting(
        "train", "a client's estimate: local training, or the shortest least-squares solution (linear regressions)"
    )
    estimate_epochs: int = setting(10, "passes over the client's data for its estimate (estimate=train)", least=1)

    def problems(self, run: Experiment) -> list[str]:
        """Refuse least squares for what is no linear regression."""
        task = run.task
        linear = task.model == "linear" or ":" in task.model
        if self.estimate == "train" or (linear and "squared_error" in task.loss):
            return []
        return [
            "strategy.estimate=least_squares: is for linear regressions (task.model=linear and a squared error), not "
            f"for task.model={task.model} with task.loss={task.loss}; use strategy.estimate=train."
        ]
