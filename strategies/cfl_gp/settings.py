"""Settings and state of CFL-GP, and their part in its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from florets.strategies.base.report import State
from florets.strategies.cfl_gp.messages import coordinates
from florets.strategies.cfl_gp.profile import GradientProfile
from florets.strategies.core import IntArray
from florets.strategies.settings import Experiment, SharedLayers
from florets.task.keys import setting
from florets.task.randomness import Purpose, generator
from florets.task.training.settings import MOST_DECIMALS, Quantise
from florets.task.wire import Layout, kinds


@dataclass(frozen=True)
class CFLGPSettings(SharedLayers):
    """The server clusters the clients' gradients on all models, averaged over time."""

    init: Literal["different", "same", "orthonormal"] = setting("different", "the K initial models")
    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of a group's average: uniform, or by examples"
    )
    period: int = setting(2, "rounds P between two clusterings", least=1)
    stop_unchanged: float = setting(
        0.1,
        "stop clustering once unchanged for this fraction of all rounds; 0: never",
        least=0,
        most=1,
        note="0 means never",
    )
    running_mean: bool = setting(True, "average gradients over time; false keeps the last one (beta = 1)")
    compression: float = setting(1.0, "d / d_hat: the profile takes one random coordinate in this many", least=1)
    profile_layers: list[str] = setting([], "name prefixes of the layers that make the profile; none: all")
    quantise: Quantise = setting("none", "decimals of all gradients and model changes that a client sends")
    quantise_digits: int = setting(
        2,
        "decimals that are kept; 0: integers",
        least=0,
        most=MOST_DECIMALS,
        needs="strategy.quantise=round|truncate",
    )
    spectrum_rounds: list[int] = setting(
        [],
        "clustering rounds (2, 2 + period, ...) whose features and singular values are plotted; rounds.jsonl keeps "
        "20 of the singular values; []: none",
    )
    k_warmup: int = setting(20, "rounds before the number of clusters is estimated (k=auto)", least=1, needs="k=auto")

    compares = "clients"
    finds_k: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"gradients"})
    # The profile is made of gradients, or of model changes.
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("gradients", "models"),
        "first_round": ("random", "update"),
        "choose_k": ("spectral", "folds"),
        "personal": ("none", "intercept", "slopes"),
    }
    gradient_batch: ClassVar[Literal["full", "train"]] = "train"

    @property
    def freezes(self) -> bool:  # type: ignore[override]  # it depends on a key
        """Whether clustering ever stops."""
        return self.stop_unchanged > 0

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a warm-up that no clustering follows."""
        # A period out of range is another problem.
        due = range(2, run.num_rounds + 1, max(self.period, 1))
        if run.k != "auto" or run.choose_k == "folds" or any(number > self.k_warmup for number in due):
            return []
        return [
            f"k=auto: K is found by the clusterings after round strategy.k_warmup={self.k_warmup}, and with "
            f"strategy.period={self.period} and num_rounds={run.num_rounds} none comes; raise num_rounds, or lower "
            "strategy.k_warmup."
        ]


@dataclass
class CFLGPState(State):
    """What CFL-GP remembers."""

    phase: str = "clustering"
    # The clients' gradients on all models; None before the first clustering and after the last.
    profile: GradientProfile | None = None
    # Entries of a flat model that make the profile, (d_hat,).
    entries: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # Clusterings so far: the models probe in turn.
    probes: int = 0
    # Clients that the last clustering placed.
    placed: set[str] = field(default_factory=set)
    # The round in which a client last changed its group, and vectors received since then.
    last_change: int = 0
    unchanged_vectors: int = 0


def decimals(settings: CFLGPSettings) -> dict[str, str | int]:
    """Return the settings of every training message; none where all decimals are kept."""
    if settings.quantise == "none":
        return {}
    return {kinds.QUANTISE: settings.quantise, kinds.QUANTISE_DIGITS: settings.quantise_digits}


def probe_message(settings: CFLGPSettings, seed: int) -> dict[str, object]:
    """Return the settings that a probe adds to a message; `seed` draws the profile's coordinates, once for a run."""
    own = {kinds.PROFILE_RATIO: settings.compression, kinds.PROFILE_SEED: seed}
    return {**own, kinds.PROFILE_LAYERS: list(settings.profile_layers)}


def profile_entries(settings: CFLGPSettings, seed: int, layout: Layout) -> IntArray:
    """Return the entries of a flat model that make the profile, (d_hat,); clients find the same ones."""
    rng = generator(seed, 0, Purpose.PROFILE_COORDINATES)
    return coordinates(layout, settings.profile_layers, settings.compression, rng)
