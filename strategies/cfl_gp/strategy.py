"""CFL-GP: cluster the clients by their gradients on all models, averaged over time."""

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.exchange import Request
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.cfl_gp.messages import TRAIN_PROBE, ProbeUpdate
from florets.strategies.cfl_gp.profile import GradientProfile, estimate_k, reported_values, spectral_features
from florets.strategies.cfl_gp.settings import CFLGPSettings, CFLGPState, decimals, probe_message, profile_entries
from florets.strategies.core import FloatArray
from florets.strategies.core.cluster import cluster, match_overlap
from florets.strategies.shared.first_round import draw_models
from florets.task.randomness import Purpose
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import GRADIENTS, MODELS
from florets.task.wire.replies import Update, read_update


class CFLGP(Strategy[CFLGPSettings, CFLGPState]):
    """Clustering by gradients: one model probes all clients every `period` rounds, and their profiles are clustered.

    With gradient averaging the profile is made of gradients, with model averaging of what local training changes.
    Each checkpoint holds it until clustering has stopped: 4 bytes a model, client and entry (fewer: `compression`).

    Source: CFL-GP, Alg. 1 (gradients), Alg. 4 and 5 (models); App. D for one exchange a round, App. F for the stop.
    Deviation: the paper's rule for stopping counts rounds alone, because its clients take part in every round.
    Deviation: the step of line 4 takes the group's mean where the paper prints a sum; its accuracies fit the mean.
    Deviation: `shared_layers` are averaged over clients, as in App. F.7 and in the released code; App. F.6 weighs
    the K models' encoders equally. On the quickstart with a shared layer both have 95.0 %; with groups of 11, 5, 2
    and 2 clients 85.6 ± 0.6 and 85.3 ± 0.7 % (3 seeds, 20 rounds, ARI 1.00).
    Deviation: the paper has no newcomers; who comes after the last clustering takes the model with the lowest loss.
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
        # One clustering may hear the same few clients again: as many vectors as clients must have changed nothing.
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
        state.probes += 1

        def request(client: Client) -> Request:
            model = r.models.one(ready[client.key])
            if ready[client.key] == probe:
                return r.request(kinds.TRAIN, client, model, plain)
            return r.request_custom(TRAIN_PROBE, client, model, probing, others)

        def read(key: str, content: RecordDict) -> Update:
            if ready[key] == probe:
                return read_update(content, layout, probe)
            return codec.read(ProbeUpdate, content, layout=layout, model=ready[key], d=len(state.entries))

        return Plan([request(client) for client in r.participants], read)

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
        if found.keys() != state.placed or list(found.values()) != previous.tolist() or self._warms_up(r):
            state.last_change, state.unchanged_vectors = r.server_round, 0
        else:
            state.unchanged_vectors += len(updates)
        self.assignment.update(found)
        state.placed = set(found)
        values = reported_values(gram, count, r.server_round in self.settings.spectrum_rounds)
        state.details = {"probe": probe, "k": number, **values}
        r.note_vectors("features", keys, groups.rows)

    def _number(self, gram: FloatArray, r: Round) -> int:
        if self.k != "auto":
            return r.models.count if self.k is None else self.k
        if self.choose_k == "folds" or self._warms_up(r):
            return r.models.count
        return estimate_k(gram, r.models.count, r.random(Purpose.CHOOSE_K))

    def _warms_up(self, r: Round) -> bool:
        return self.k == "auto" and self.choose_k != "folds" and r.server_round <= self.settings.k_warmup
