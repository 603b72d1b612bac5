"""FedSoft: a model for each client, pulled towards K centres by how many of its samples fit each best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets import Plan, Round, Settings, State, Steps, Strategy, Update, setting
from florets.client_app.client import Client
from florets.strategies.base.models import Models
from florets.strategies.base.round import Tests
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.settings import MODELS_ALONE
from florets.strategies.shared.client import trained_near
from florets.strategies.shared.personal_models import PersonalModels
from florets.task.training.mixture import sample_losses
from florets.task.wire import codec, kinds
from florets.task.wire.leaving import CHOICES, MODELS
from florets.task.wire.records import MalformedMessage
from florets.task.wire.replies import Examples, read_update
from florets.zoo.shared.mixtures import leading, refuse_equal

TRAIN_ANCHORED = "florets.zoo.fedsoft:train_anchored"
CLOSEST = "florets.zoo.fedsoft:closest"

ESTIMATE_EVERY = 2
"""Rounds for which a client's importance weights hold before it is asked again."""
SMOOTHING = 1e-4
"""Importance weight instead of 0 (sigma)."""


@dataclass(frozen=True)
class FedSoftSettings(Settings):
    """Each client trains its own model, pulled towards K centres by how many of its samples fit each best."""

    proximal_lambda: float = setting(
        0.1,
        "weight lambda of the clients' term lambda/2 sum_k u_k |w - centre_k|^2, over all parameters; 0: Local-only, "
        "and means of its models",
        least=0,
    )
    tested: Literal["personal", "centre"] = setting(
        "personal", "what a client tests: its own model, or the centre with its largest importance weight"
    )

    shares: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"updates", "choices"})
    follows = MODELS_ALONE


@dataclass
class Estimate:
    """A client's importance weights (K,), and the round in which it was asked."""

    weights: FloatArray
    server_round: int


@dataclass
class FedSoftState(State):
    """What FedSoft remembers; `assignment` has each client's centre with the largest importance weight."""

    phase: str = "soft"
    personal: PersonalModels = field(default_factory=PersonalModels)
    # The initial models, from the first of which every personal one starts.
    reference: Models | None = None
    # The latest of each client that was asked.
    estimates: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class ClosestCounts:
    """Reply to `CLOSEST`: training samples that each model explains best, (K,), together `num_examples`."""

    counts: Annotated[IntArray, codec.Numbers("K", name="closest", integer=True, least=0)]
    num_examples: Examples

    def check(self) -> None:
        """Hold the counts to the examples."""
        if int(self.counts.sum()) != self.num_examples:
            raise MalformedMessage(f"closest do not sum to the {self.num_examples} examples")


class FedSoft(Strategy[FedSoftSettings, FedSoftState]):
    """Soft clustering in which a client trains one model, whatever the number of centres.

    Every `ESTIMATE_EVERY` rounds a client tells for how many of its samples each centre has the least loss; the
    shares are its importance weights u. It trains its own last model w with the term lambda/2 sum_k u_k |w - c_k|^2,
    and each centre becomes the mean of what clients returned, by u_ik n_i. A round costs FedAvg's local work; a
    client predicts with its own model.

    Personal models are kept by the server, 4 R bytes for each client that has trained, so that clients keep nothing
    and an interrupted run goes on. The term's gradient is that of lambda (sum_k u_k) |w - c|^2 / 2 with c the mean of
    the centres by u: that one model is sent, and not K. With lambda 0 every client trains alone.

    Source: Ruan and Joe-Wong 2022 (FedSoft, arXiv 2112.06053); lambda 0.1 of the paper's MNIST runs,
    estimates every 2 rounds, sigma and the mean without drawing as in the released code.
    Deviation: the run's optimiser is built anew in every round; the released one lives on in its client.
    Deviation: all clients start from the first of the K initial models; in the released code from one more.
    Deviation: of a round's participants alone, and not of all clients, estimates are asked, once they are
    `ESTIMATE_EVERY` rounds old; with full participation that is the same.
    """

    leaving = (MODELS, CHOICES)
    Settings = FedSoftSettings
    State = FedSoftState

    @property
    def mixtures(self) -> Mapping[str, FloatArray]:
        """Return the latest importance weights of each client that was asked."""
        return {key: estimate.weights for key, estimate in self.state.estimates.items()}

    def details(self) -> dict[str, Any]:
        """Return the mean importance weight of each centre over all clients that were asked."""
        found = list(self.mixtures.values())
        return {"mean_importance": np.mean(found, axis=0).tolist()} if found else {}

    def check(self, models: Models) -> None:
        """Refuse several centres that are equal: every sample would be nearest to the first for ever."""
        super().check(models)
        refuse_equal(models, type(self).__name__)

    def round(self, r: Round) -> Steps:
        """Bring the importance weights up to date, and let clients train near their centres."""
        state, layout, mu = self.state, r.models.layout, self.settings.proximal_lambda
        start = state.reference = state.reference or r.models
        self._estimate(r)
        r.participants = [client for client in r.participants if client.key in state.estimates]
        requests = [
            r.request_custom(
                TRAIN_ANCHORED,
                client,
                state.personal.of(client.key, start).one(0),
                {**r.averaging.settings, kinds.GLOBAL_MU: mu * float(state.estimates[client.key].weights.sum())},
                {kinds.GLOBAL: self._anchor(client.key, r.models)},
            )
            for client in r.participants
        ]
        updates = yield Plan(
            requests,
            lambda key, content: read_update(content, layout, int(np.argmax(state.estimates[key].weights))),
        )
        for key, update in updates:
            state.personal[key] = update.vector
        return self._centres(updates, r)

    def _estimate(self, r: Round) -> None:
        """Ask participants whose weights are missing or old; one whose reply is lost keeps those that it has."""
        found, count = self.state.estimates, r.models.count
        oldest = r.server_round - ESTIMATE_EVERY
        due = r.newcomers({key for key, estimate in found.items() if estimate.server_round > oldest})
        if not due:
            return

        def read(_: str, content: RecordDict) -> ClosestCounts:
            return codec.read(ClosestCounts, content, K=count)

        with r.meter.part("losses"):
            requests = [r.request_custom(CLOSEST, one, r.models.record, category="evaluate") for one in due]
            replies = r.ask(requests, read)
        for key, reply in replies.ok:
            found[key] = Estimate(importance(reply.counts), r.server_round)

    def _anchor(self, key: str, models: Models) -> ArrayRecord:
        """Return the mean of the centres by a client's importance weights."""
        weights = self.state.estimates[key].weights
        mean = weights @ models.bank / weights.sum()
        # Counters have no mean, and are no parameters.
        mean[models.layout.integers] = models.bank[0, models.layout.integers]
        return models.replaced(mean[np.newaxis]).one(0)

    def _centres(self, updates: Sequence[tuple[str, Update]], r: Round) -> FloatArray:
        """Return the next centres (K, R)."""
        shares = np.stack([self.state.estimates[key].weights for key, _ in updates])
        # With a robust rule, see `leading`.
        counts = np.ones(shares.shape, np.bool_) if r.averaging.robust is None else leading(shares)
        # A row for each centre that a client counts for.
        rows, centres = np.nonzero(counts)
        vectors = np.stack([update.vector for _, update in updates])
        examples = np.array([update.num_examples for _, update in updates], dtype=np.float64)
        weights = shares[rows, centres] * examples[rows]
        return r.averaging.next_bank(
            r.models, vectors[rows], centres, weights, [updates[int(row)][0] for row in rows]
        )

    def own_models(self, models: Models) -> dict[str, FloatArray]:
        """Return the models of the clients that have trained; the final models are the centres."""
        return self.state.personal.by_client()

    def test(self, r: Round) -> Tests:
        """Let every tester that has trained test its own model, or its nearest centre."""
        state = self.state
        testers = [client.key for client in r.testers if client.key in state.personal]
        if self.settings.tested == "centre":
            return self.personal.test(r, {key: self.assignment[key] for key in testers})
        start = state.reference or r.models
        return r.test({key: state.personal.of(key, start).one(0) for key in testers})


def importance(counts: IntArray) -> FloatArray:
    """Return the importance weights u (K,) of the centres for one client, whose sum may be a little above 1.

    `counts` (K,) say for how many of its samples each centre has the least loss; `SMOOTHING` takes the place of 0.

    Source: Ruan and Joe-Wong 2022 (FedSoft), sigma as in the released code.
    """
    weights: FloatArray = np.where(counts == 0, SMOOTHING, counts / counts.sum())
    return weights


def train_anchored(client: Client) -> RecordDict:
    """Return the model that came after training near the other one, and its loss.

    Source: Ruan and Joe-Wong 2022 (FedSoft), the clients' proximal problem.
    """
    return codec.pack(Update, **trained_near(client))


def closest(client: Client) -> RecordDict:
    """Count the training samples that each model explains best; of equal losses the first model's counts.

    Source: Ruan and Joe-Wong 2022 (FedSoft), estimation of the importance weights.
    """
    data = client.data
    losses = sample_losses(client.module, client.states(), data.x_train, data.y_train, client.loss)
    best = np.argmin(np.where(np.isnan(losses), np.inf, losses), axis=1)
    counts = np.bincount(best, minlength=losses.shape[1])
    return codec.pack(ClosestCounts, counts=counts, num_examples=client.num_examples)
