"""CFL-GP: cluster the clients by their gradients on all models, averaged over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.averaging import ModelAveraging
from florets.strategies.base.context import Plan, Round
from florets.strategies.base.models import Models
from florets.strategies.base.report import ADVICE, SPECTRUM, Detail
from florets.strategies.base.strategy import Strategy
from florets.strategies.cfl_gp.messages import TRAIN_PROBE, ProbeUpdate, coordinates
from florets.strategies.cfl_gp.profile import ClientProfiles, GradientProfile
from florets.strategies.cfl_gp.spectral import estimate_k, singular_values, spectral_features
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import cluster
from florets.strategies.core.matching import match_overlap
from florets.strategies.settings import Compared, Experiment, SharedLayers, idle
from florets.strategies.shared.first_rounds import StartState, draw_models, start_from_updates, starts_from_updates
from florets.task.keys import setting
from florets.task.randomness import Purpose, generator
from florets.task.wire import Layout, codec, kinds
from florets.task.wire.replies import Update, read_update

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default


Quantise = Literal["none", "round", "truncate"]

_FEW = 6
"""Rounds that an error lists one by one."""


@dataclass(frozen=True)
class CFLGPSettings(SharedLayers):
    """The server clusters the clients' gradients on all models, averaged over time."""

    init: Literal["different", "same", "orthonormal"] = setting("different", "how the K initial models relate")
    weighting: Literal["uniform", "examples"] = setting(
        "uniform", "weights of a group's average: uniform, or by examples"
    )
    initial_groups: Literal["random", "one"] = setting("random", "groups before the first clustering, in round 2")
    period: int = setting(2, "rounds P from one clustering to the next", least=1)
    cluster_rounds: int | None = setting(None, "no clustering after this round; null: no such bound", least=2)
    stop_unchanged: float = setting(
        0.1,
        "stop clustering once unchanged for this fraction of all rounds; 0: never",
        least=0,
        most=1,
        note="0 means never",
    )
    running_mean: bool = setting(True, "average gradients over time; false keeps the last one (beta = 1)")
    compression: float = setting(1.0, "d / d_hat: one random coordinate in so many makes the profile", least=1)
    profile_layers: list[str] = setting([], "name prefixes of the layers that make the profile; none: all")
    quantise: Quantise = setting("none", "decimals of all gradients and model changes that a client sends")
    quantise_digits: int = setting(2, "decimals that are kept; 0: integers (quantise)", least=0)
    spectrum_rounds: list[int] = setting(
        [],
        "rounds that cluster (2, 2 + period, ...) of which features and singular values are drawn, and rounds.jsonl "
        "keeps 20 of these; []: none",
    )
    k_warmup: int = setting(20, "rounds before the number of clusters is estimated (k=auto)", least=1)

    compares: ClassVar[Compared] = "clients"
    finds_k: ClassVar[bool] = True
    # The profile is made of gradients, or of model changes.
    follows: ClassVar[Mapping[str, Sequence[str]]] = {
        "averaging": ("gradients", "models"),
        "first_round": ("random", "update"),
        "choose_k": ("spectral", "folds"),
        "personal": ("none", "ditto", "fedala", "fedproto", "intercept"),
    }
    gradient_batch: ClassVar[Literal["full", "train"]] = "train"

    @property
    def start(self) -> Literal["different", "same", "orthonormal", "true"]:
        """How the first models are made."""
        return self.init

    def conflicts(self) -> list[str]:
        """Refuse decimals where none are dropped."""
        needed = "strategy.quantise=round or truncate"
        return (
            idle(self, ["quantise_digits"], needed) if self.quantise == "none" and self.quantise_digits >= 0 else []
        )

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a warm-up that no clustering follows, and one without k=auto."""
        lines = idle(self, ["initial_groups"], "first_round=random") if run.first_round == "update" else []
        lines += [*self._personal(run), *self._never_clustered(run)]
        if run.k == "auto" and run.choose_k != "folds":
            return [*lines, *self._never_finds_k(run)]
        needed = "k=auto choose_k=spectral" if run.k == "auto" else "k=auto"
        return [*lines, *(idle(self, ["k_warmup"], needed) if self.k_warmup >= 1 else [])]

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
        last, period = run.num_rounds, max(self.period, 1)
        bound = "num_rounds"
        if self.cluster_rounds is not None and self.cluster_rounds < last:
            last, bound = self.cluster_rounds, "strategy.cluster_rounds"
        due = range(2, last + 1, period)
        if not (wrong := [number for number in self.spectrum_rounds if number not in due]):
            return []
        shown = _listed(due) if len(due) <= _FEW else f"{', '.join(map(str, due[: _FEW - 1]))}, ..., {due[-1]}"
        rule = f"the rounds that cluster are {shown}" if due else "no round clusters"
        return [
            f"{given}: with strategy.period={self.period} and {bound}={last} {rule}; leave out {_listed(wrong)}, or "
            f"change strategy.period or {bound}."
        ]

    def _personal(self, run: Experiment) -> list[str]:
        """Refuse what a personal method cannot follow: fewer decimals, and groups that are never settled."""
        if run.personal in (None, "none"):
            return []
        lines = []
        if self.quantise != "none":
            lines.append(
                f"strategy.quantise={self.quantise}: clients of personal={run.personal} send all decimals; leave it "
                "out."
            )
        if run.personal == "fedproto" and self.stop_unchanged == 0 and self.cluster_rounds is None:
            lines.append(
                "strategy.stop_unchanged=0: personal=fedproto begins once clustering has stopped; give "
                "strategy.cluster_rounds, or leave it out."
            )
        return lines

    def _never_finds_k(self, run: Experiment) -> list[str]:
        """Return a problem if no clustering comes after the warm-up."""
        rounds = {"num_rounds": run.num_rounds}
        if self.cluster_rounds is not None:
            rounds["strategy.cluster_rounds"] = self.cluster_rounds
        # Clusterings are in rounds 2, 2 + period, and so on; a period out of range is another problem.
        period, last = max(self.period, 1), min(rounds.values())
        last_clustering = 2 + period * ((last - 2) // period) if last >= 2 else 0
        if self.k_warmup < last_clustering:
            return []
        # The first clustering after the warm-up.
        needed = 2 + period * max(-(-(self.k_warmup - 1) // period), 0)
        remedy = " ".join(f"{name}={needed}" for name, number in rounds.items() if number < needed)
        if last_clustering:
            remedy = f"strategy.k_warmup={last_clustering // 2} or {remedy}"
        found = f"is in round {last_clustering}" if last_clustering else "never comes"
        return [
            f"k=auto: K is found at the clusterings after round strategy.k_warmup={self.k_warmup}, but the last one "
            f"{found} (the first is in round 2, with one every strategy.period={self.period} rounds); add {remedy}."
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
    """Return the entries of a flat model that make the profile, (d_hat,); clients find the same ones.

    Raises
    ------
    ValueError
        If the models lack one of the profile's layers.
    """
    rng = generator(seed, 0, Purpose.PROFILE_COORDINATES)
    return coordinates(layout, settings.profile_layers, settings.compression, rng)


SHOWN = 20
"""Singular values of a round whose spectrum is kept (Fig. 19 tells of a gap behind the eighth)."""


@dataclass
class CFLGPState(StartState):
    """What CFL-GP remembers.

    Attributes
    ----------
    profiles
        The clients' gradients on all models; None before the first clustering and after the last.
    entries
        Entries of a flat model that make the profile, (d_hat,).
    probes
        Clusterings so far: the models probe in turn.
    placed
        Clients that the last clustering placed.
    last_change
        The round in which a client last changed its group.
    unchanged_vectors
        Vectors that came since then.
    details
        What the round tells in its report.
    """

    phase: str = "clustering"
    profiles: ClientProfiles | None = None
    entries: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    probes: int = 0
    placed: set[str] = field(default_factory=set)
    last_change: int = 0
    unchanged_vectors: int = 0
    details: dict[str, Detail] = field(default_factory=dict)


class CFLGP(Strategy[CFLGPSettings, CFLGPState]):
    """Clustering by gradients: one model probes all clients every `period` rounds, and their profiles are clustered.

    With gradient averaging the profile is made of gradients, with model averaging of what local training changes.

    Until clustering has stopped the profile is part of the state, and so of each checkpoint: 4 bytes for each of the
    K models, each client and each entry of its vector. With large models write fewer checkpoints (`checkpoint_every`)
    or use a smaller profile (`compression`).

    Raises
    ------
    ValueError
        By `check` and in round 1, if the initial arrays hold fewer models than `k` or lack a layer of the profile.

    Source: CFL-GP, Alg. 1 (gradients), Alg. 4 and 5 (models); App. D for one exchange a round, App. F for the stop.
    Deviation: the paper's rule for stopping speaks of rounds alone, because all its clients take part in all of them.
    Deviation: the step of line 4 takes the group's mean where the paper prints a sum; its accuracies fit the mean.
    """

    Settings = CFLGPSettings
    State = CFLGPState

    def details(self) -> dict[str, Detail]:
        """Return what was probed and found in a round that clustered, or in round 1; nothing of the others."""
        return {**self.state.details, **(self.state.found if self.context.server_round == 1 else {})}

    def check(self, models: Models) -> None:
        """Refuse fewer models than clusters, and profile layers that the models do not have."""
        super().check(models)
        profile_entries(self.settings, self.seed, models.layout)

    def plan(self, context: Round) -> Plan[Update]:
        """Give every participant a model (l. 3), and the probe as well where clustering is due (l. 5 to 7)."""
        t = context.server_round - 1
        if self.state.profiles is None:
            self.check(context.models)
        self.state.details = {}
        before = self.state.phase
        self.state.phase = "training" if context.models.count == 1 else "stable" if self._is_over(t) else "clustering"
        if self.state.phase == "stable":
            # Much memory, and in every checkpoint: nobody is clustered again.
            self.state.profiles = None
        if self.state.phase != before and (lacking := self._lacking_spectra(context.server_round)):
            self.state.details[ADVICE] = lacking
        if starts_from_updates(self, context):
            return start_from_updates(self, context, lambda _: None)
        ready = self._place_newcomers(context) if self.state.phase == "stable" else self._start_newcomers(context)
        if self.state.phase == "clustering" and t >= 1 and (t - 1) % self.settings.period == 0:
            return self._probe(ready, context)
        return context.train_assigned(ready, decimals(self.settings))

    def _lacking_spectra(self, now: int) -> str:
        """Say which rounds of `spectrum_rounds` will never cluster once clustering has stopped; empty: none."""
        lacking = [str(number) for number in self.settings.spectrum_rounds if number >= now]
        if self.state.phase == "clustering" or not lacking:
            return ""
        if self.state.phase == "training":
            why = "there is one group, and no round clusters"
        else:
            unchanged = f"strategy.stop_unchanged={self.settings.stop_unchanged:g}; 0 never stops it"
            why = f"clustering has stopped before round {now} ({unchanged})"
        return f"strategy.spectrum_rounds: nothing is recorded for {', '.join(lacking)}: {why}"

    def _is_over(self, done: int) -> bool:
        """Return whether clustering has stopped after so many rounds."""
        if self.state.phase == "stable":
            # For good: a run that goes on for more rounds has no profile left to cluster by.
            return True
        if self.settings.cluster_rounds is not None and done >= self.settings.cluster_rounds:
            return True
        # Rounds without clustering prove nothing, and neither does one that hears the same few clients again: as many
        # vectors as there are clients must have changed nothing. With all replies that is one clustering.
        unproven = self.state.unchanged_vectors < max(len(self.state.placed), 1)
        if self.settings.stop_unchanged == 0 or self.last_round is None or unproven:
            return False
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return done - self.state.last_change >= self.settings.stop_unchanged * self.last_round - 1e-9

    def _start_newcomers(self, context: Round) -> dict[str, int]:
        """Give clients that are seen for the first time an initial group; return the participants' models."""
        new = [client for client in context.online if client.key not in self.assignment]
        used = sorted(set(self.assignment.values())) or list(range(context.models.count))
        choices = used[:1] if self.settings.initial_groups == "one" else used
        drawn = draw_models(new, len(choices), context.random(Purpose.FIRST_ROUND))
        self.assignment.update({key: choices[place] for key, place in drawn.items()})
        return {client.key: self.assignment[client.key] for client in context.participants}

    def _place_newcomers(self, context: Round) -> dict[str, int]:
        """Give participants that were never clustered the model with the lowest loss.

        Deviation: the paper has no newcomers. An initial group says nothing of where a client belongs.
        """
        used = sorted({self.assignment[key] for key in self.state.placed}) or list(range(context.models.count))
        new = [client for client in context.participants if client.key not in self.state.placed]
        if new:
            with context.meter.part("losses"):
                replies = context.ask_losses(new, context.models)
            for key, reply in replies.ok:
                self.assignment[key] = used[int(np.argmin(reply.losses[used]))]
                self.state.placed.add(key)
        # A client whose losses were lost sits this round out.
        return {
            client.key: self.assignment[client.key]
            for client in context.participants
            if client.key in self.state.placed
        }

    def _probe(self, ready: Mapping[str, int], context: Round) -> Plan[Update]:
        """Plan the one exchange that trains all participants and asks each for its vector on the probe.

        A client whose own model is the probe is sent an ordinary `train`: its update is that vector.
        """
        layout, probe = context.models.layout, self.state.probes % context.models.count
        if self.state.profiles is None:
            self.state.entries = profile_entries(self.settings, self.seed, layout)
            profile = GradientProfile.empty(context.models.count, len(self.state.entries), self.settings.running_mean)
            self.state.profiles = ClientProfiles(profile)
        plain = {**context.averaging.settings, **decimals(self.settings)}
        others = {kinds.PROBE: context.models.one(probe)}
        requests = []
        for client in context.participants:
            own = context.models.one(ready[client.key])
            if ready[client.key] == probe:
                requests.append(context.request(kinds.TRAIN, client, own, plain))
            else:
                settings = {**plain, **probe_message(self.settings, self.seed)}
                requests.append(context.request_custom(TRAIN_PROBE, client, own, settings, others))
        self.state.probes += 1

        def read(key: str, content: RecordDict) -> Update:
            if ready[key] == probe:
                return read_update(content, layout, probe)
            return codec.read(ProbeUpdate, content, layout=layout, model=ready[key], d=len(self.state.entries))

        def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            # The step first: it belongs to the old groups (l. 4), and the new ones count from the next round on.
            bank = self.average(updates)
            with context.meter.part("cluster"):
                self._cluster(probe, updates, context)
            return bank

        return Plan(requests, read, combine)

    def _cluster(self, probe: int, updates: Sequence[tuple[str, Update]], context: Round) -> None:
        """Refresh one block of the profile and group all clients that have one (l. 8 to 10)."""
        assert self.state.profiles is not None
        start = context.models.bank[probe] if isinstance(self.averaging, ModelAveraging) else 0.0
        vectors = {
            key: update.profile if isinstance(update, ProbeUpdate) else (update.vector - start)[self.state.entries]
            for key, update in updates
        }
        self.state.profiles.refresh(probe, vectors)
        keys = self.state.profiles.keys
        gram = self.state.profiles.gram(keys)
        number = self._number(gram, context)
        features = spectral_features(gram, number)
        groups = cluster(features, number, "kmeans", context.random(Purpose.CLUSTERING))
        previous = np.array([self.assignment[key] for key in keys])
        models = match_overlap(groups, previous, context.models.count)[groups]
        if set(keys) != self.state.placed or (models != previous).any() or self._warms_up(context):
            self.state.last_change, self.state.unchanged_vectors = context.server_round, 0
        else:
            self.state.unchanged_vectors += len(updates)
        self.assignment.update({key: int(model) for key, model in zip(keys, models, strict=True)})
        self.state.placed = set(keys)
        shown = context.server_round in self.settings.spectrum_rounds
        found = context.models.count + 1
        values = singular_values(gram, max(found, SHOWN if shown else 0)).tolist()
        self.state.details = {"probe": probe, "k": number, "singular_values": values[:found]}
        if shown:
            self.state.details[SPECTRUM] = values
        context.note_vectors("features", keys, features)

    def _number(self, gram: FloatArray, context: Round) -> int:
        if self.k != "auto":
            return context.models.count if self.k is None else self.k
        if self.choose_k == "folds" or self._warms_up(context):
            return context.models.count
        return estimate_k(gram, context.models.count, context.random(Purpose.CHOOSE_K))

    def _warms_up(self, context: Round) -> bool:
        return self.k == "auto" and self.choose_k != "folds" and context.server_round <= self.settings.k_warmup
