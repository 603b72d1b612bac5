"""Settings of random intercepts."""

from dataclasses import dataclass

from florets.strategies.settings import Experiment, Settings


@dataclass(frozen=True)
class InterceptSettings(Settings):
    """The group's model, with an own output bias of each client that is shrunk towards the common one."""

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a task whose outputs have no intercept."""
        if run.task.loss != "reconstruction":
            return []
        return [
            "personal=intercept: shifts logits or one value, and task.loss=reconstruction has neither; use another "
            "strategy."
        ]
