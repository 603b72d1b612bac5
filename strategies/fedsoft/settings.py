"""Settings of FedSoft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Experiment, Settings
from florets.task.keys import setting


@dataclass(frozen=True)
class FedSoftSettings(Settings):
    """Each client trains one model of its own, held near K centres as far as its samples are like theirs."""

    proximal_lambda: float = setting(
        0.1,
        "weight lambda of the clients' term lambda/2 sum_k u_k |w - centre_k|^2, over all parameters; 0: Local-only, "
        "and means of its models",
        least=0,
    )
    estimate_every: int = setting(
        2, "rounds for which a client's importance weights hold before it is asked again", least=1
    )
    smoothing: float = setting(1e-4, "importance weight in place of 0", above=0, below=1)
    clients_per_centre: int | None = setting(
        None,
        "clients that each centre draws in a round, by their importance, and becomes the plain mean of; null: all of "
        "the round's participants train, and a centre is their mean by importance",
        least=1,
        note="null draws nobody",
    )
    tested: Literal["personal", "centre"] = setting(
        "personal", "what a client tests: its own model, or the centre with its largest importance weight"
    )

    shares: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    def problems(self, run: Experiment) -> list[str]:
        """Refuse more clients for each centre than take part in a round."""
        problems = super().problems(run)
        drawn, participants = self.clients_per_centre, max(int(self.fraction_train * run.num_clients + 1e-9), 1)
        # Of nodes with data of their own nobody knows how many will come.
        if drawn is not None and run.task.partition != "own" and drawn > participants:
            problems.append(
                f"strategy.clients_per_centre={drawn}: a round has {participants} of {run.num_clients} clients; "
                "draw no more of them, or leave it out, as then all count."
            )
        return problems
