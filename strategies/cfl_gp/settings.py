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

_FEW = 6
"""Rounds that an error lists one by one."""


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
        """Refuse decimals on another wire, and a warm-up that no clustering follows."""
        lines = self._never_clustered(run)
        if self.quantise != "none" and run.wire != "float32":
            lines.append(
                f"strategy.quantise={self.quantise}: decimals are of float32; leave it, or wire={run.wire}, out."
            )
        if run.k == "auto" and run.choose_k != "folds":
            return [*lines, *self._never_finds_k(run)]
        return lines

    def _never_clustered(self, run: Experiment) -> list[str]:
        """Return a problem if a round whose features are to be kept does not cluster, or is named twice."""
        if not self.spectrum_rounds:
            return []
        given = f"strategy.spectrum_rounds={self.spectrum_rounds}"
        if twice := sorted({number for number in self.spectrum_rounds if self.spectrum_rounds.count(number) > 1}):
            return [f"{given}: names {_listed(twice)} more than once; name each round once."]
        if run.k == 1:
            return [f"{given}: with k=1 no round clusters; leave strategy.spectrum_rounds out, or give a larger k."]
        # A period out of range is another problem.
        due = range(2, run.num_rounds + 1, max(self.period, 1))
        if not (wrong := [number for number in self.spectrum_rounds if number not in due]):
            return []
        shown = _listed(due) if len(due) <= _FEW else f"{', '.join(map(str, due[: _FEW - 1]))}, ..., {due[-1]}"
        rule = f"the rounds that cluster are {shown}" if due else "no round clusters"
        return [
            f"{given}: with strategy.period={self.period} and num_rounds={run.num_rounds} {rule}; leave out "
            f"{_listed(wrong)}, or change strategy.period or num_rounds."
        ]

    def _never_finds_k(self, run: Experiment) -> list[str]:
        """Return a problem if no clustering comes after the warm-up."""
        # Clusterings are in rounds 2, 2 + period, and so on; a period out of range is another problem.
        period, last = max(self.period, 1), run.num_rounds
        last_clustering = 2 + period * ((last - 2) // period) if last >= 2 else 0
        if self.k_warmup < last_clustering:
            return []
        # The first clustering after the warm-up.
        remedy = f"num_rounds={2 + period * max(-(-(self.k_warmup - 1) // period), 0)}"
        if last_clustering:
            remedy = f"strategy.k_warmup={last_clustering // 2} or {remedy}"
        found = f"is in round {last_clustering}" if last_clustering else "never comes"
        return [
            f"k=auto: K is determined by the clusterings after round strategy.k_warmup={self.k_warmup}, but the "
            f"last one {found} (the first is in round 2, with one every strategy.period={self.period} rounds); add "
            f"{remedy}."
        ]


def _listed(numbers: Sequence[int]) -> str:
    """Return numbers in words: 2, 4 and 6."""
    words = [str(number) for number in numbers]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else ", ".join(words)


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
