"""Settings of FeSEM."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import SharedLayers
from florets.task.keys import setting


@dataclass(frozen=True)
class FeSEMSettings(SharedLayers):
    """After local training each client joins the nearest of K models, which become their clients' means."""

    clustering: Literal["nearest", "kmeans"] = setting(
        "nearest",
        "a client joins the model that is nearest to its own, or the round's models are grouped anew by k-means, as "
        "in the released code",
    )
    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of the means, and of k-means: uniform, or by examples (WeCFL)"
    )
    period: int = setting(1, "rounds from one assignment to the next", least=1)
    layers: list[str] = setting([], "name prefixes of the layers whose weights are compared; none: all")
    scaling: Literal["none", "layers"] = setting(
        "none", "distances are those of the weights, or every layer has one vote, whatever its size and spread"
    )

    # Distances are of models, not of gradients.
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",), "personal": ("none", "intercept")}

    @property
    def start(self) -> Literal["different", "same", "orthonormal", "true"]:
        """How the first models are made: models are comparable only where they start from one."""
        return "same"
