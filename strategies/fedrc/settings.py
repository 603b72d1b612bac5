"""Settings of FedRC."""

from dataclasses import dataclass

from florets.strategies.fedem.settings import FedEMSettings
from florets.strategies.settings import Experiment


@dataclass(frozen=True)
class FedRCSettings(FedEMSettings):
    """FedEM whose models cannot divide the classes among themselves: what remains to tell them apart is concepts."""

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a task without classes."""
        if run.task.loss == "cross_entropy":
            return []
        return [
            f"task.loss={run.task.loss}: FedRC weighs samples by their classes, so the task must have some; use "
            "task.loss=cross_entropy, or strategy=fedem."
        ]
