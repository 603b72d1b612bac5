"""CFL-GP: cluster the clients by their gradients on all models, averaged over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.report import SPECTRUM, State
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.cfl_gp.messages import TRAIN_PROBE, ProbeUpdate, coordinates
from florets.strategies.cfl_gp.profile import GradientProfile, estimate_k, singular_values, spectral_features
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import cluster, match_overlap
from florets.strategies.settings import Experiment, SharedLayers
from florets.strategies.shared.first_round import draw_models
from florets.task.keys import setting
from florets.task.randomness import Purpose, generator
from florets.task.training.settings import MOST_DECIMALS, Quantise
from florets.task.wire import Layout, codec, kinds
from florets.task.wire.leaving import GRADIENTS, MODELS
from florets.task.wire.replies import Update, read_update

SHOWN = 20
"""Singular values of a round whose spectrum is kept (Fig. 19 tells of a gap behind the eighth)."""


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


class CFLGP(Strategy[CFLGPSettings, CFLGPState]):
    """Clustering by gradients: one model probes all clients every `period` rounds, and their profiles are clustered.

    With gradient averaging the profile is made of gradients, with model averaging of what local training changes.

    Until clustering has stopped the profile is part of the state, and so of each checkpoint: 4 bytes for each of the
    K models, each client and each entry of its vector. With large models write fewer checkpoints (`checkpoint_every`)
    or use a smaller profile (`compression`).

    Source: CFL-GP, Alg. 1 (gradients), Alg. 4 and 5 (models); App. D for one exchange a round, App. F for the stop.
    Deviation: the paper's rule for stopping counts rounds alone, because its clients take part in every round.
    Deviation: the step of line 4 takes the group's mean where the paper prints a sum; its accuracies fit the mean.
    Deviation: `shared_layers` are averaged over clients, as in App. F.7 and in the released code; App. F.6 weighs
    the K models' encoders equally. On the quickstart with a shared layer both have 95.0 %; with groups of 11, 5, 2
    and 2 clients 85.6 ± 0.6 and 85.3 ± 0.7 % (3 seeds, 20 rounds, ARI 1.00).
    Deviation: the paper has no newcomers. One that comes after the last clustering takes the model with the lowest
    loss: an initial group says nothing about where a client belongs.
    """

    leaving = (MODELS, GRADIENTS)
    Settings = CFLGPSettings
    State = CFLGPState

    def check(self, models: Models) -> None:
        """Refuse fewer models than clusters, and profile layers that the models do not have."""
        super().check(models)
        profile_entries(self.settings, self.seed, models.layout)

    def round(self, r: Round) -> Steps:
        """Train every participant's model (l. 3 and 4); probe and cluster where it is due (l. 5 to 10)."""
        state, t = self.state, r.server_round - 1
        if state.profile is None:
            self.check(r.models)
        state.phase = "training" if r.models.count == 1 else "stable" if self.has_frozen(t) else "clustering"
        if state.phase == "stable":
            # It takes much memory, also in every checkpoint, and nobody is clustered again.
            state.profile = None
        ready = self._place_newcomers(r) if state.phase == "stable" else self._start_newcomers(r)
        if state.phase != "clustering" or t < 1 or (t - 1) % self.settings.period:
            updates = yield r.train(ready, decimals(self.settings))
            return r.average(updates, drawn=not state.placed)
        probe = state.probes % r.models.count
        updates = yield self._with_probe(probe, ready, r)
        # The step first: it belongs to the old groups (l. 4), and the new ones count from the next round on.
        bank = r.average(updates, drawn=not state.placed)
        with r.meter.part("cluster"):
            self._cluster(probe, updates, r)
        return bank

    def has_frozen(self, done: int) -> bool:
        """Return whether groups are frozen after this many rounds."""
        if self.state.phase == "stable":
            # For good: a run that goes on for more rounds has no profile left to cluster by.
            return True
        # Rounds without clustering prove nothing, and neither does one that hears the same few clients again: as many
        # vectors as there are clients must have changed nothing. With all replies that is one clustering.
        unproven = self.state.unchanged_vectors < max(len(self.state.placed), 1)
        if self.settings.stop_unchanged == 0 or self.last_round is None or unproven:
            return False
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return done - self.state.last_change >= self.settings.stop_unchanged * self.last_round - 1e-9

    def _start_newcomers(self, r: Round) -> dict[str, int]:
        """Give clients that are seen for the first time an initial group; return the participants' models."""
        new = [client for client in r.online if client.key not in self.assignment]
        used = sorted(set(self.assignment.values())) or list(range(r.models.count))
        drawn = draw_models(new, len(used), r.random(Purpose.FIRST_ROUND))
        self.assignment.update({key: used[place] for key, place in drawn.items()})
        return {client.key: self.assignment[client.key] for client in r.participants}

    def _place_newcomers(self, r: Round) -> dict[str, int]:
        """Give participants that were never clustered the model with the lowest loss."""
        placed = self.state.placed
        used = sorted({self.assignment[key] for key in placed}) or list(range(r.models.count))
        found = r.ask_lowest(r.newcomers(placed), used)
        self.assignment.update(found)
        placed.update(found)
        # A client whose losses were lost sits this round out.
        return {client.key: self.assignment[client.key] for client in r.participants if client.key in placed}

    def _with_probe(self, probe: int, ready: Mapping[str, int], r: Round) -> Plan[Update]:
        """Plan the one exchange that trains all participants and asks each for its vector on the probe."""
        layout, state, own = r.models.layout, self.state, self.settings
        if state.profile is None:
            state.entries = profile_entries(own, self.seed, layout)
            state.profile = GradientProfile.empty(r.models.count, len(state.entries), own.running_mean)
        plain = {**r.averaging.settings, **decimals(own)}
        probing, others = {**plain, **probe_message(own, self.seed)}, {kinds.PROBE: r.models.one(probe)}
        requests = []
        for client in r.participants:
            model = r.models.one(ready[client.key])
            if ready[client.key] == probe:
                requests.append(r.request(kinds.TRAIN, client, model, plain))
            else:
                requests.append(r.request_custom(TRAIN_PROBE, client, model, probing, others))
        state.probes += 1

        def read(key: str, content: RecordDict) -> Update:
            if ready[key] == probe:
                return read_update(content, layout, probe)
            return codec.read(ProbeUpdate, content, layout=layout, model=ready[key], d=len(state.entries))

        return Plan(requests, read)

    def _cluster(self, probe: int, updates: Sequence[tuple[str, Update]], r: Round) -> None:
        """Refresh one block of the profile and group all clients that have one (l. 8 to 10)."""
        state, profile = self.state, self.state.profile
        assert profile is not None
        start = r.models.bank[probe] if isinstance(self.averaging, ModelAveraging) else 0.0
        vectors = {
            key: update.profile if isinstance(update, ProbeUpdate) else (update.vector - start)[state.entries]
            for key, update in updates
        }
        profile.refresh(probe, r.vectors(vectors))  # l. 8
        keys, count = sorted(profile.rows), r.models.count
        gram = profile.gram(keys)
        number, rng = self._number(gram, r), r.random(Purpose.CLUSTERING)
        groups = r.group(  # l. 9 and 10
            *(keys, lambda alike: spectral_features(gram, number, alike), number),
            lambda rows: cluster(rows, number, "kmeans", rng),
        )
        previous = np.array([self.assignment[key] for key in keys])
        groups = groups.matched(lambda found: match_overlap(found.labels, previous, count), count)
        found = groups.assignment
        moved = list(found.values()) != previous.tolist()
        if found.keys() != state.placed or moved or self._warms_up(r):
            state.last_change, state.unchanged_vectors = r.server_round, 0
        else:
            state.unchanged_vectors += len(updates)
        self.assignment.update(found)
        state.placed = set(found)
        shown = r.server_round in self.settings.spectrum_rounds
        values = singular_values(gram, max(count + 1, SHOWN if shown else 0)).tolist()
        state.details = {"probe": probe, "k": number, "singular_values": values[: count + 1]}
        if shown:
            state.details[SPECTRUM] = values
        r.note_vectors("features", keys, groups.rows)

    def _number(self, gram: FloatArray, r: Round) -> int:
        if self.k != "auto":
            return r.models.count if self.k is None else self.k
        if self.choose_k == "folds" or self._warms_up(r):
            return r.models.count
        return estimate_k(gram, r.models.count, r.random(Purpose.CHOOSE_K))

    def _warms_up(self, r: Round) -> bool:
        return self.k == "auto" and self.choose_k != "folds" and r.server_round <= self.settings.k_warmup


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
