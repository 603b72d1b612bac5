"""CFL-GP: cluster the clients by their gradients on all models, averaged over time."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.round import Plan, Round
from florets.strategies.base.models import ModelAveraging
from florets.strategies.base.report import ADVICE, SPECTRUM
from florets.strategies.cfl_gp.messages import TRAIN_PROBE, ProbeUpdate
from florets.strategies.cfl_gp.profile import (
    ClientProfiles,
    GradientProfile,
    estimate_k,
    singular_values,
    spectral_features,
)
from florets.strategies.cfl_gp.settings import CFLGPSettings, decimals, probe_message, profile_entries
from florets.strategies.cfl_gp.stages import Stages
from florets.strategies.core import FloatArray
from florets.strategies.core.cluster import cluster, match_overlap
from florets.strategies.core.robust import shortened
from florets.strategies.core.set_aside import placed
from florets.strategies.shared.bounded_rows import bounded_moves, bounded_rows, without_strangers
from florets.strategies.shared.first_rounds import start_from_updates, starts_from_updates
from florets.task.randomness import Purpose
from florets.task.wire import codec, kinds
from florets.task.wire.replies import Update, read_update

SHOWN = 20
"""Singular values of a round whose spectrum is kept (Fig. 19 tells of a gap behind the eighth)."""


class CFLGP(Stages):
    """Clustering by gradients: one model probes all clients every `period` rounds, and their profiles are clustered.

    With gradient averaging the profile is made of gradients, with model averaging of what local training changes.

    Until clustering has stopped the profile is part of the state, and so of each checkpoint: 4 bytes for each of the
    K models, each client and each entry of its vector. With large models write fewer checkpoints (`checkpoint_every`)
    or use a smaller profile (`compression`).

    Source: CFL-GP, Alg. 1 (gradients), Alg. 4 and 5 (models); App. D for one exchange a round, App. F for the stop.
    Deviation: the paper's rule for stopping speaks of rounds alone, because all its clients take part in all of them.
    Deviation: the step of line 4 takes the group's mean where the paper prints a sum; its accuracies fit the mean.
    Deviation: `shared_layers` are averaged over clients, as in App. F.7 and in the released code; App. F.6 weighs
    the K models' encoders equally. On the quickstart with a shared layer both have 95.0 %; with groups of 11, 5, 2
    and 2 clients 85.6 ± 0.6 and 85.3 ± 0.7 % (3 seeds, 20 rounds, ARI 1.00).
    """

    Settings = CFLGPSettings

    def plan(self, context: Round) -> Plan[Update]:
        """Give every participant a model (l. 3), and the probe as well where clustering is due (l. 5 to 7)."""
        t = context.server_round - 1
        if self.state.profiles is None:
            self.check(context.models)
        before = self.state.phase
        self.state.phase = "training" if context.models.count == 1 else "stable" if self.is_over(t) else "clustering"
        if self.state.phase == "stable":
            # Much memory, and in every checkpoint: nobody is clustered again.
            self.state.profiles = None
        if self.state.phase != before and (lacking := self.lacking_spectra(context.server_round)):
            self.state.details[ADVICE] = lacking
        if starts_from_updates(self, context):
            return start_from_updates(self, context, lambda _: None)
        ready = self.place_newcomers(context) if self.state.phase == "stable" else self.start_newcomers(context)
        if self.state.phase == "clustering" and t >= 1 and (t - 1) % self.settings.period == 0:
            return self._probe(ready, context)
        return context.train_assigned(ready, decimals(self.settings))

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

    def average(self, updates: Sequence[tuple[str, Update]]) -> FloatArray:
        """Average the updates; groups that are drawn, before the first clustering, have bounded moves."""
        bank = super().average(updates)
        return bank if self.state.placed else bounded_moves(self.context, bank)

    def _cluster(self, probe: int, updates: Sequence[tuple[str, Update]], context: Round) -> None:
        """Refresh one block of the profile and group all clients that have one (l. 8 to 10)."""
        assert self.state.profiles is not None
        start = context.models.bank[probe] if isinstance(self.averaging, ModelAveraging) else 0.0
        vectors = {
            key: update.profile if isinstance(update, ProbeUpdate) else (update.vector - start)[self.state.entries]
            for key, update in updates
        }
        if context.averaging.robust is not None:
            vectors = shortened(vectors)
        self.state.profiles.refresh(probe, vectors)
        keys = self.state.profiles.keys
        gram = self.state.profiles.gram(keys)
        number = self._number(gram, context)
        features, strangers = without_strangers(
            self.state, context, keys, lambda others: spectral_features(gram, number, others), number
        )
        rows, aside = bounded_rows(self.state, context, keys, features, number, strangers)
        rng = context.random(Purpose.CLUSTERING)
        groups = placed(rows, aside, lambda core: cluster(core, number, "kmeans", rng))
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
