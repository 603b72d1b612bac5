"""Settings of algorithms for tasks with classes."""

from dataclasses import dataclass
from typing import ClassVar

from florets import Experiment, Settings


@dataclass(frozen=True)
class OfClasses(Settings):
    """Settings of an algorithm that needs classes."""

    purpose: ClassVar[str]
    """What the algorithm does with them, with its name."""

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a task without classes."""
        if run.task.loss == "cross_entropy":
            return []
        return [
            f"task.loss={run.task.loss}: {self.purpose}, so the task must have some; use "
            "task.loss=cross_entropy, or another method."
        ]
