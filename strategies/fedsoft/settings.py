"""Settings of FedSoft."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import Settings, key


@dataclass(frozen=True)
class FedSoftSettings(Settings):
    """Each client trains one model of its own, held near K centres as far as its samples are like theirs."""

    proximal_lambda: float = key(
        0.1,
        "weight lambda of the clients' term lambda/2 sum_k u_k |w - centre_k|^2, over all parameters; 0: Local-only, "
        "and means of its models",
        least=0,
    )
    estimate_every: int = key(
        2, "rounds for which a client's importance weights hold before it is asked again", least=1
    )
    smoothing: float = key(1e-4, "importance weight in place of 0", above=0, below=1)
    clients_per_centre: int | None = key(
        None,
        "clients that each centre draws in a round, by their importance, and becomes the plain mean of; null: all of "
        "the round's participants train, and a centre is their mean by importance",
        least=1,
        note="null draws nobody",
    )
    tested: Literal["personal", "centre"] = key(
        "personal", "what a client tests: its own model, or the centre with its largest importance weight"
    )

    shares: ClassVar[bool] = True
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}
