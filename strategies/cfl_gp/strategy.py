"""CFL-GP: cluster the clients by their gradients on all models, averaged over time."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.averaging import ModelAveraging
from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.models import Models
from florets.strategies.base.report import Detail
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.cfl_gp.gradient_profile import GradientProfile
from florets.strategies.cfl_gp.spectral import estimate_k, singular_values, spectral_features
from florets.strategies.cfl_gp.upload import ClientProfiles, Upload
from florets.strategies.core import FloatArray
from florets.strategies.core.cluster import cluster
from florets.strategies.core.matching import match_overlap
from florets.strategies.shared.first_round import draw_models
from florets.task.randomness import Purpose
from florets.task.wire import kinds
from florets.task.wire.probe import ProbeUpdate, read_probe_update
from florets.task.wire.replies import Update, read_update


class CflGp(ClusteredStrategy):
    """Clustering by gradients: one model probes all clients every `period` rounds, and their profiles are clustered.

    Parameters
    ----------
    k
        Number of clusters, or "auto": as many as models for `k_warmup` rounds, then what the profile shows.
    period
        Rounds P from one clustering to the next; the first is in round 2 (the paper's t = 1).
    initial_groups
        "random": every model gets clients, as far as there are enough. "one": all clients start in one group.
    cluster_rounds
        No clustering after this round (T_cl); None: no such bound.
    stop_unchanged
        Clustering also stops once it has been unchanged for this share of all rounds, in which as many vectors came
        as there are clients; 0: never.
    running_mean
        False keeps each client's last gradient on a model in place of the mean over time (beta = 1).
    k_warmup
        For k="auto": the number of clusters is estimated after this round, at every clustering from then on.
    upload
        What clients leave out of what they send.
    common
        Parameters of `ClusteredStrategy`; the number of models is that of the initial arrays. With gradient averaging
        the profile is made of gradients, with model averaging of what local training changes.

    Until clustering has stopped the profile is part of the state, and so of each checkpoint: 4 bytes for each of the
    K models, each client and each entry of its vector. With large models write fewer checkpoints (`checkpoint_every`)
    or use a smaller profile (`upload`).

    Raises
    ------
    ValueError
        By `check` and in round 1, if the initial arrays hold fewer models than `k` or lack a layer of `upload`.

    Source: CFL-GP, Alg. 1 (gradients), Alg. 4 and 5 (models); App. D for one exchange a round, App. F for the stop.
    Deviation: the paper's rule for stopping speaks of rounds alone, because all its clients take part in all of them.
    Deviation: the step of line 4 takes the group's mean where the paper prints a sum; its accuracies fit the mean.
    """

    def __init__(
        self,
        *,
        k: int | Literal["auto"],
        period: int = 2,
        initial_groups: Literal["random", "one"] = "random",
        cluster_rounds: int | None = None,
        stop_unchanged: float = 0.1,
        running_mean: bool = True,
        k_warmup: int = 20,
        upload: Upload | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.k = k
        self.period = period
        self.initial_groups = initial_groups
        self.cluster_rounds = cluster_rounds
        self.stop_unchanged = stop_unchanged
        self.running_mean = running_mean
        self.k_warmup = k_warmup
        self.upload = upload or Upload(seed=self.seed)
        self.profiles: ClientProfiles | None = None
        self.placed: set[str] = set()
        self.last_change = self.unchanged_vectors = 0
        self._places = np.zeros(0, dtype=np.int64)
        self._probes = 0
        self._phase = "clustering"
        self._details: dict[str, Detail] = {}

    @property
    def phase(self) -> str:
        """The round that decides to stop still clusters; the next one is stable."""
        return self._phase

    def details(self) -> dict[str, Detail]:
        """Return what was probed and found in a round that clustered; nothing of the others."""
        return self._details

    def check(self, models: Models) -> None:
        """Refuse fewer models than clusters, and profile layers that the models do not have."""
        if self.k != "auto" and self.k > models.count:
            raise ValueError(
                f"k={self.k} clusters need as many models, but the initial arrays hold {models.count}; "
                "pack K models with florets.task.wire.bank.pack"
            )
        self.upload.places(models.layout)

    def plan(self, context: RoundContext) -> Plan:
        """Give every participant a model (l. 3), and the probe as well where clustering is due (l. 5 to 7)."""
        t = context.server_round - 1
        if self.profiles is None:
            self.check(context.models)
        self._details = {}
        self._phase = "training" if context.models.count == 1 else "stable" if self._is_over(t) else "clustering"
        if self._phase == "stable":
            # Much memory, and in every checkpoint: nobody is clustered again.
            self.profiles = None
        ready = self._place_newcomers(context) if self._phase == "stable" else self._start_newcomers(context)
        if self._phase == "clustering" and t >= 1 and (t - 1) % self.period == 0:
            return self._probe(ready, context)
        return context.train_assigned(ready, **self.upload.decimals)

    def _is_over(self, done: int) -> bool:
        """Return whether clustering has stopped after so many rounds."""
        if self._phase == "stable":
            # For good: a run that goes on for more rounds has no profile left to cluster by.
            return True
        if self.cluster_rounds is not None and done >= self.cluster_rounds:
            return True
        # Rounds without clustering prove nothing, and neither does one that hears the same few clients again: as many
        # vectors as there are clients must have changed nothing. With all replies that is one clustering.
        unproven = self.unchanged_vectors < max(len(self.placed), 1)
        if self.stop_unchanged == 0 or self.last_round is None or unproven:
            return False
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return done - self.last_change >= self.stop_unchanged * self.last_round - 1e-9

    def _start_newcomers(self, context: RoundContext) -> dict[str, int]:
        """Give clients that are seen for the first time an initial group; return the participants' models."""
        new = [client for client in self.federation.online() if client.key not in self.assignment]
        used = sorted(set(self.assignment.values())) or list(range(context.models.count))
        choices = used[:1] if self.initial_groups == "one" else used
        drawn = draw_models(new, len(choices), context.random(Purpose.FIRST_ROUND))
        self.assignment.update({key: choices[place] for key, place in drawn.items()})
        return {client.key: self.assignment[client.key] for client in context.participants}

    def _place_newcomers(self, context: RoundContext) -> dict[str, int]:
        """Give participants that were never clustered the model with the lowest loss.

        Deviation: the paper has no newcomers. An initial group says nothing of where a client belongs.
        """
        used = sorted({self.assignment[key] for key in self.placed}) or list(range(context.models.count))
        new = [client for client in context.participants if client.key not in self.placed]
        if new:
            with context.meter.part("losses"):
                replies = context.ask_losses(new, context.models)
            for key, reply in replies.ok:
                self.assignment[key] = used[int(np.argmin(reply.losses[used]))]
                self.placed.add(key)
        # A client whose losses were lost sits this round out.
        return {
            client.key: self.assignment[client.key] for client in context.participants if client.key in self.placed
        }

    def _probe(self, ready: Mapping[str, int], context: RoundContext) -> Plan:
        """Plan the one exchange that trains all participants and asks each for its vector on the probe.

        A client whose own model is the probe is sent an ordinary `train`: its update is that vector.
        """
        layout, probe = context.models.layout, self._probes % context.models.count
        if self.profiles is None:
            self._places = self.upload.places(layout)
            profile = GradientProfile.empty(context.models.count, len(self._places), self.running_mean)
            self.profiles = ClientProfiles(profile)
        plain = {**self.averaging.settings, **self.upload.decimals}
        others = {kinds.PROBE: context.models.one(probe)}
        requests = []
        for client in context.participants:
            own = context.models.one(ready[client.key])
            if ready[client.key] == probe:
                requests.append(context.request(kinds.TRAIN, client, own, plain))
            else:
                settings = {**plain, **self.upload.settings}
                requests.append(context.request(kinds.TRAIN_PROBE, client, own, settings, others))
        self._probes += 1

        def read(key: str, content: RecordDict) -> Update:
            if ready[key] == probe:
                return read_update(content, layout, probe)
            return read_probe_update(content, layout, ready[key], len(self._places))

        def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
            # The step first: it belongs to the old groups (l. 4), and the new ones count from the next round on.
            bank = self.average(updates)
            with context.meter.part("cluster"):
                self._cluster(probe, updates, context)
            return bank

        return Plan(requests, read, combine)

    def _cluster(self, probe: int, updates: Sequence[tuple[str, Update]], context: RoundContext) -> None:
        """Refresh one block of the profile and group all clients that have one (l. 8 to 10)."""
        assert self.profiles is not None
        start = context.models.bank[probe] if isinstance(self.averaging, ModelAveraging) else 0.0
        vectors = {
            key: update.profile if isinstance(update, ProbeUpdate) else (update.vector - start)[self._places]
            for key, update in updates
        }
        self.profiles.refresh(probe, vectors)
        keys = self.profiles.keys
        gram = self.profiles.gram(keys)
        number = self._number(gram, context)
        groups = cluster(spectral_features(gram, number), number, "kmeans", context.random(Purpose.CLUSTERING))
        previous = np.array([self.assignment[key] for key in keys])
        models = match_overlap(groups, previous, context.models.count)[groups]
        if set(keys) != self.placed or (models != previous).any() or self._warms_up(context):
            self.last_change, self.unchanged_vectors = context.server_round, 0
        else:
            self.unchanged_vectors += len(updates)
        self.assignment.update({key: int(model) for key, model in zip(keys, models, strict=True)})
        self.placed = set(keys)
        values = singular_values(gram, context.models.count + 1)
        self._details = {"probe": probe, "k": number, "singular_values": values.tolist()}

    def _number(self, gram: FloatArray, context: RoundContext) -> int:
        if self.k != "auto":
            return self.k
        if self._warms_up(context):
            return context.models.count
        return estimate_k(gram, context.models.count, context.random(Purpose.CHOOSE_K))

    def _warms_up(self, context: RoundContext) -> bool:
        return self.k == "auto" and context.server_round <= self.k_warmup
