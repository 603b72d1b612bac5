"""Keys of the layers around an algorithm that groups clients by their losses of the models."""

from dataclasses import dataclass

from florets.strategies.starts.restarts import Restarted
from florets.task.keys import setting


@dataclass(frozen=True)
class ByLosses(Restarted):
    """Keys of grouping by losses: which losses are rejected, and who is watched once groups are frozen."""

    outlier_loss: float | None = setting(
        100.0,
        "reject clients whose best loss is over this many times the median client's worst, two rounds running; "
        "null: reject none",
        least=1,
        note="null rejects nobody",
    )
    memory: bool = setting(False, "group the latest loss vectors of all clients seen, not only this round's")
    watch: float | None = setting(
        None,
        "once groups are frozen: robust z-score of a client's training loss within its group above which its losses "
        "are asked for again; 8 works well; null: off",
        above=0,
        note="null: no watch",
    )
    probes: int = setting(0, "additional random models, never trained, on which loss vectors are also taken", least=0)

    @property
    def extra_models(self) -> int:
        """Initial models that the algorithm needs in addition to the K that are trained."""
        return self.probes

    def conflicts(self) -> list[str]:
        """Refuse restarts with probes, which belong to one attempt, and a watch of groups that are never frozen."""
        problems = super().conflicts()
        if self.restarts > 1 and self.probes > 0:
            problems.append(f"strategy.probes={self.probes}: cannot be used with strategy.restarts; leave one out.")
        if self.watch is not None and not self.freezes:
            problems.append(
                f"strategy.watch={self.watch:g}: has an effect only once groups are frozen, and with these keys they "
                "never are; leave it out."
            )
        return problems
