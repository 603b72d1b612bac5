"""Settings of CFL-GP, and their part in its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.cfl_gp.messages import coordinates
from florets.strategies.core import IntArray
from florets.strategies.settings import Experiment, SharedLayers
from florets.task.keys import setting
from florets.task.randomness import Purpose, generator
from florets.task.training.settings import Quantise
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
        2, "decimals that are kept; 0: integers", least=0, needs="strategy.quantise=round|truncate"
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
        """Refuse rounds that do not cluster, decimals on another wire, and a warm-up that no clustering follows."""
        lines = []
        # A period out of range is another problem.
        due = range(2, run.num_rounds + 1, max(self.period, 1)) if run.k != 1 else range(0)
        every = f"strategy.period={self.period} and num_rounds={run.num_rounds}"
        if wrong := [str(number) for number in self.spectrum_rounds if number not in due]:
            lines.append(
                f"strategy.spectrum_rounds={self.spectrum_rounds}: with {every} rounds {', '.join(wrong)} do not "
                "cluster (round 2 does, and then every period-th, with k above 1); leave them out."
            )
        if run.k == "auto" and run.choose_k != "folds" and not any(number > self.k_warmup for number in due):
            lines.append(
                f"k=auto: K is found by the clusterings after round strategy.k_warmup={self.k_warmup}, and with "
                f"{every} none comes; raise num_rounds, or lower strategy.k_warmup."
            )
        return lines


def decimals(settings: CFLGPSettings) -> dict[str, str | int]:
    """Return the settings of every training message; none where all decimals are kept."""
    if settings.quantise == "none":
        return {}
    return {kinds.QUANTISE: settings.quantise, kinds.QUANTISE_DIGITS: settings.quantise_digits}


def probe_message(settings: CFLGPSettings, seed: int) -> dict[str, object]:
    """Return the settings of a message with a probe; `seed` draws the profile's coordinates, once for a run."""
    own = {kinds.PROFILE_RATIO: settings.compression, kinds.PROFILE_SEED: seed}
    return {**decimals(settings), **own, kinds.PROFILE_LAYERS: list(settings.profile_layers)}


def profile_entries(settings: CFLGPSettings, seed: int, layout: Layout) -> IntArray:
    """Return the entries of a flat model that make the profile, (d_hat,); clients find the same ones."""
    rng = generator(seed, 0, Purpose.PROFILE_COORDINATES)
    return coordinates(layout, settings.profile_layers, settings.compression, rng)
