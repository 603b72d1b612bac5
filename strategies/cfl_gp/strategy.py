"""CFL-GP: cluster the clients by their gradients on all models, averaged over time."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.models import ModelAveraging
from florets.strategies.base.report import SPECTRUM
from florets.strategies.base.round import Plan, Round, Steps
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
    Deviation: the paper's rule for stopping counts rounds alone, because its clients take part in every round.
    Deviation: the step of line 4 takes the group's mean where the paper prints a sum; its accuracies fit the mean.
    Deviation: `shared_layers` are averaged over clients, as in App. F.7 and in the released code; App. F.6 weighs
    the K models' encoders equally. On the quickstart with a shared layer both have 95.0 %; with groups of 11, 5, 2
    and 2 clients 85.6 ± 0.6 and 85.3 ± 0.7 % (3 seeds, 20 rounds, ARI 1.00).
    """

    Settings = CFLGPSettings

    def round(self, r: Round) -> Steps:
        """Train every participant's model (l. 3 and 4); probe and cluster where it is due (l. 5 to 10)."""
        state, t = self.state, r.server_round - 1
        if state.profiles is None:
            self.check(r.models)
        state.phase = "training" if r.models.count == 1 else "stable" if self.has_frozen(t) else "clustering"
        if state.phase == "stable":
            # It takes much memory, also in every checkpoint, and nobody is clustered again.
            state.profiles = None
        ready = self.place_newcomers(r) if state.phase == "stable" else self.start_newcomers(r)
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

    def _with_probe(self, probe: int, ready: Mapping[str, int], r: Round) -> Plan[Update]:
        """Plan the one exchange that trains all participants and asks each for its vector on the probe.

        A client whose own model is the probe is sent an ordinary `train`: its update is that vector.
        """
        layout, state = r.models.layout, self.state
        if state.profiles is None:
            state.entries = profile_entries(self.settings, self.seed, layout)
            profile = GradientProfile.empty(r.models.count, len(state.entries), self.settings.running_mean)
            state.profiles = ClientProfiles(profile)
        plain = {**r.averaging.settings, **decimals(self.settings)}
        others = {kinds.PROBE: r.models.one(probe)}
        requests = []
        for client in r.participants:
            own = r.models.one(ready[client.key])
            if ready[client.key] == probe:
                requests.append(r.request(kinds.TRAIN, client, own, plain))
            else:
                settings = {**plain, **probe_message(self.settings, self.seed)}
                requests.append(r.request_custom(TRAIN_PROBE, client, own, settings, others))
        state.probes += 1

        def read(key: str, content: RecordDict) -> Update:
            if ready[key] == probe:
                return read_update(content, layout, probe)
            return codec.read(ProbeUpdate, content, layout=layout, model=ready[key], d=len(state.entries))

        return Plan(requests, read)

    def _cluster(self, probe: int, updates: Sequence[tuple[str, Update]], r: Round) -> None:
        """Refresh one block of the profile and group all clients that have one (l. 8 to 10)."""
        state = self.state
        assert state.profiles is not None
        start = r.models.bank[probe] if isinstance(self.averaging, ModelAveraging) else 0.0
        vectors = {
            key: update.profile if isinstance(update, ProbeUpdate) else (update.vector - start)[state.entries]
            for key, update in updates
        }
        state.profiles.refresh(probe, r.vectors(vectors))  # l. 8
        keys, count = state.profiles.keys, r.models.count
        gram = state.profiles.gram(keys)
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
