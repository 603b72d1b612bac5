"""Settings of the algorithms that can be started several times."""

from dataclasses import dataclass
from typing import Literal

from florets.strategies.settings import Experiment, Weighted, idle
from florets.task.keys import setting


@dataclass(frozen=True)
class Restarted(Weighted):
    """Keys of an algorithm whose outcome depends on its random first models."""

    restarts: int = setting(1, "starts from other random models, of which the best goes on; 1: the only one", least=1)
    restart_rounds: int = setting(
        5, "rounds of each start; those of the one that goes on count in num_rounds", least=1
    )
    keep_start: Literal["loss", "share"] = setting(
        "loss",
        "the best start: least mean of the clients' least losses, or the largest share of clients for the model that "
        "has the fewest",
    )

    @property
    def first_rounds(self) -> int:
        """Rounds of the starts that do not go on."""
        return (self.restarts - 1) * self.restart_rounds

    def conflicts(self) -> list[str]:
        """Refuse settings of starts where there is one."""
        return idle(self, ["restart_rounds", "keep_start"], "strategy.restarts of 2 or more") * (self.restarts == 1)

    def problems(self, run: Experiment) -> list[str]:
        """Refuse starts that no round follows, and those that would all be alike or have other numbers of models."""
        if self.restarts < 2:
            return []
        problems = []
        if run.num_rounds <= self.restart_rounds:
            problems.append(
                f"strategy.restart_rounds={self.restart_rounds}: the best start goes on to round "
                f"num_rounds={run.num_rounds}; use fewer, or raise num_rounds."
            )
        if run.k == "auto":
            problems.append("k=auto: starts with different numbers of models cannot be compared; give an integer.")
        if run.first_round == "update":
            problems.append(
                f"strategy.restarts={self.restarts}: first_round=update starts from one model, and hardly depends on "
                "which; leave one of them out."
            )
        return problems
