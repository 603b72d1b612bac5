"""FlexCFL: group clients once, by the directions of their first updates, then FedAvg in each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from scipy.linalg import svd

from florets import Experiment, Round, State, Steps, Strategy, Update, setting
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import ModelAveraging, Models
from florets.strategies.base.report import Client
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.cluster import centroids, cluster, one_thread
from florets.strategies.settings import Initial, SharedLayers
from florets.strategies.shared.estimates import ask_estimates
from florets.task.randomness import Purpose
from florets.task.wire import codec
from florets.task.wire.leaving import LABELS as LABEL_COUNTS
from florets.task.wire.leaving import MODELS
from florets.zoo.flexcfl.messages import LABELS, LabelCounts
from florets.zoo.shared.agglomerative import group_into
from florets.zoo.shared.directions import cosines


def group_updates(updates: FloatArray, num_groups: int, measure: str, rng: np.random.Generator) -> IntArray:
    """Return the group (M,) of each client by its update (M, D), at most `num_groups`, in order of first appearance.

    ``"edc"`` is k-means of the decomposed cosines, ``"madc"`` complete linkage of the cosine differences.

    Source: Duan et al. 2022 (FlexCFL, arXiv 2108.09749) and 2020 (FedGroup, arXiv 2010.06870), clustering of the pre-
    trained clients.
    """
    if measure == "madc":
        return group_into(cosine_differences(updates), num_groups, "complete").clusters
    return cluster(decomposed_cosines(updates, num_groups), num_groups, "kmeans", rng)


def decomposed_cosines(updates: FloatArray, count: int) -> FloatArray:
    """Return the cosine (M, count) of each update with each of the leading directions of all of them.

    The distance of two rows is the "Euclidean distance of decomposed cosine similarity" (EDC). The directions are
    singular vectors of the matrix of updates: with U S V^T = updates, the cosine of row i with direction j is U_ij
    S_j / |update_i|, so that no direction is ever formed. A column's entry of largest size is positive; an update of
    zeros has cosines of 0.

    Source: FlexCFL and FedGroup, EDC.
    Deviation: all singular values are found, where the released code takes a randomised decomposition.
    """
    # Their common scale cancels; without it squares of large updates could overflow.
    scaled = updates / (np.abs(updates).max(initial=0.0) or 1.0)
    with one_thread():
        left, values, _ = svd(scaled, full_matrices=False)
    features = (left * values)[:, :count]
    lengths = np.sqrt(np.sum((left * values) ** 2, axis=1, keepdims=True))
    features = features / np.where(lengths > 0, lengths, 1.0)
    largest = np.argmax(np.abs(features), axis=0)
    signs = np.where(np.take_along_axis(features, largest[np.newaxis], axis=0) < 0, -1.0, 1.0)
    signed: FloatArray = features * signs
    return signed


def cosine_differences(updates: FloatArray) -> FloatArray:
    """Return how differently two clients see the others: their "mean of absolute differences of cosines" (MADC).

    Of clients i and j it is the mean, over all other clients z, of |cos(i, z) - cos(j, z)|; of two clients alone 1 -
    cos(i, j).

    Source: FlexCFL and FedGroup, MADC. The two clients' own cosines are left out, as in the released code's
    call for it (`correction=True`): they are 1 and cos(i, j) in one row, and cos(i, j) and 1 in the other.
    """
    similarity = cosines(updates)
    number = len(similarity)
    if number < 3:
        differences: FloatArray = np.clip(1.0 - similarity, 0.0, None)
        np.fill_diagonal(differences, 0.0)
        return differences
    differences = np.zeros_like(similarity)
    for row in range(number):
        apart = np.abs(similarity - similarity[row])
        # Columns `row` and j are the two clients' own.
        own = apart[:, row] + np.diagonal(apart)
        differences[row] = (apart.sum(axis=1) - own) / (number - 2)
        differences[row, row] = 0.0
    return np.maximum(differences, differences.T)


def nearest_direction(update: FloatArray, directions: FloatArray) -> int:
    """Return the group whose direction (C, D) has the largest cosine with an update (D,); the first among equals.

    Source: FlexCFL, cold start of a newcomer: the group of least normalised cosine dissimilarity.
    """
    return int(np.argmax(cosines(update[np.newaxis], directions)[0]))


_MOST = 1e100


def mix_groups(bank: FloatArray, groups: int, rate: float, entries: BoolArray) -> FloatArray:
    """Return the bank (K, R) with the models of the first groups moved towards each other.

    Model g becomes the mean of itself, with weight 1, and of every other group's model j, with weight eta /
    |theta_j|: a convex combination, so that models that are equal stay as they are. Only `entries` (R,), the
    trainable parameters, are mixed, and count in the length.

    Source: FlexCFL, inter-group aggregation with learning rate eta_g, as the released code normalises it.
    """
    mixed = np.array(bank, dtype=np.float64)
    if rate == 0 or groups < 2:
        return mixed
    models = bank[:groups][:, entries]
    lengths = np.sqrt(np.sum(models**2, axis=1))
    # A model of zeros has no direction to move to.
    # At the cap a model keeps nothing of itself; beyond it sums could overflow.
    weights = np.where(lengths > 0, np.minimum(rate / np.where(lengths > 0, lengths, 1.0), _MOST), 0.0)
    for group in range(groups):
        others = np.arange(groups) != group
        pull = np.sum(weights[others, np.newaxis] * models[others], axis=0)
        mixed[group, entries] = (models[group] + pull) / (1.0 + weights[others].sum())
    return mixed


def label_shift(before: IntArray, now: IntArray) -> float:
    """Return the earth mover's distance of two histograms of labels, as federated learning defines it.

    It is the sum over classes of the absolute difference of the two fractions: 0 for equal fractions, 2 where no
    class is in both. A histogram (C,) without any samples has fractions of 0.

    Source: FlexCFL, client migration, whose threshold is on this scale.
    Deviation: the released code compares the counts as if they were samples of one variable, which cannot see two
    classes change places. Fractions are compared, so that more data of the same kind are no shift.
    """
    fractions = [counts / max(int(counts.sum()), 1) for counts in (before, now)]
    return float(np.abs(fractions[0] - fractions[1]).sum())


@dataclass(frozen=True)
class FlexCFLSettings(SharedLayers):
    """The server groups clients once, by the directions of their first updates; then FedAvg in each group."""

    asks: ClassVar[frozenset[str]] = frozenset({"updates"})

    measure: Literal["edc", "madc"] = setting(
        "edc",
        "how updates are compared: cosines with their leading directions (k-means), or how differently two clients "
        "see the others (complete linkage)",
    )
    cold_start_scale: int = setting(20, "clients that form the groups, for each of the k groups", least=1)
    cold_start_steps: int = setting(50, "local steps of a client's cold start, from the one initial model", least=1)
    inter_group_rate: float = setting(
        0.0,
        "eta_g: how far a group's model moves towards the others' after a round, relative to the length "
        "|theta| of theirs; 0: not at all",
        least=0,
        note="0 means not",
    )
    migration: float | None = setting(
        None,
        "cold-start a client again once its label fractions have moved by more than this in sum (the paper's code: "
        "0.2); clients then report their number of samples of each class; null: never",
        above=0,
        below=2,
        note="null means never",
    )

    # Updates are comparable only where they start from one model.
    usual_initial: ClassVar[Initial] = "same"

    def problems(self, run: Experiment) -> list[str]:
        """Refuse migration where there are no labels to count."""
        if self.migration is None or run.task.loss == "cross_entropy":
            return []
        return [
            f"strategy.migration={self.migration:g}: compares counts of labels, and task.loss={run.task.loss} has "
            "none; use strategy.migration=null."
        ]


@dataclass
class FlexCFLState(State):
    """What FlexCFL remembers.

    Attributes
    ----------
    reference
        The one initial model, from which every client's cold start begins; None before round 1.
    directions
        Mean update of each group's clients at the cold start, (C, D); None before. Of trainable parameters.
    label_counts
        Samples of each class that a client had when it was last cold-started; empty without migration.
    """

    phase: str = "clustering"
    reference: Models | None = None
    directions: FloatArray | None = None
    label_counts: dict[str, IntArray] = field(default_factory=dict)


class FlexCFL(Strategy[FlexCFLSettings, FlexCFLState]):
    """Static groups from the directions of the clients' first updates.

    In round 1 some clients take a few local steps from the one initial model, their cold start. What these changed is
    grouped; a group's model is the mean of its clients' models, and its direction that of their updates. Every other
    client is cold-started when it first takes part, and joins the group whose direction is nearest to its own. Groups
    stay, unless a client's labels shift (`migration`).

    With gradient averaging the cold start takes local steps all the same.

    Source: Duan et al. 2022 (FlexCFL, arXiv 2108.09749): cold start, EDC and MADC, inter-group aggregation, client
    migration; FedGroup (arXiv 2010.06870) is the same without migration.
    Deviation: migration is off by default, because for it clients tell the server how many samples of each class they
    have. Where labels do not shift it changes nothing.
    Deviation: a client is tested with its group's present model, not with that of the round in which it last took
    part, as in the released code.
    """

    leaving = (MODELS, LABEL_COUNTS)
    Settings = FlexCFLSettings
    State = FlexCFLState

    def round(self, r: Round) -> Steps:
        """Form the groups, or place who is new in them or has shifted; then every client trains its group's model."""
        state = self.state
        is_first = state.directions is None
        state.phase = "clustering" if is_first or self.settings.migration is not None else "stable"
        founders = []
        if is_first:
            number = min(self.settings.cold_start_scale * r.models.count, len(r.online))
            drawn = r.random(Purpose.FIRST_ROUND).choice(len(r.online), size=number, replace=False)
            founders = [r.online[index] for index in np.sort(drawn)]
        counts = self._count_labels({client.key: client for client in (*founders, *r.participants)}, r)
        if is_first:
            r.models = self._form_groups(founders, counts, r)
        formed = len(self.assignment) if is_first else 0
        shifted = self._shifted(counts)
        open_clients = [c for c in r.participants if c.key not in self.assignment or c.key in shifted]
        placed = self._place(open_clients, counts, r)
        counted = {"cold_started": formed + placed, "migrated": len(shifted)}
        state.details = {name: float(number) for name, number in counted.items() if number}
        updates = yield r.train(self.assignment)
        # FedAvg in each group, then inter-group aggregation.
        models, directions = r.models, state.directions
        assert directions is not None
        # Layers that are shared are equal already.
        mixed = models.layout.trained & ~models.shared
        return mix_groups(r.average(updates), len(directions), self.settings.inter_group_rate, mixed)

    def _form_groups(self, founders: Sequence[Client], counts: Mapping[str, IntArray], r: Round) -> Models:
        """Return the groups' initial models: what their clients' cold starts came to, on average."""
        models = r.models
        self.state.reference = models.replaced(models.bank[:1])
        replies = self._cold_start(founders, r)
        r.require(replies, "cold start")
        with r.meter.part("cluster"):
            vectors = np.stack([update.vector for _, update in replies.ok])
            changes = self._changes(vectors)
            r.note_vectors("updates", [key for key, _ in replies.ok], changes)
            groups = group_updates(changes, models.count, self.settings.measure, r.random(Purpose.CLUSTERING))
            self.state.directions = centroids(changes, groups)
            self._note({key: int(group) for (key, _), group in zip(replies.ok, groups, strict=True)}, counts)
            ones = np.ones(len(groups))
            return models.replaced(
                ModelAveraging("uniform", robust=r.averaging.robust).next_bank(models, vectors, groups, ones)
            )

    def _place(self, clients: Sequence[Client], counts: Mapping[str, IntArray], r: Round) -> int:
        """Cold-start clients and let each join the nearest group; return how many did.

        A newcomer whose cold start was lost sits this round out; one that has a group trains that group's model.
        """
        if not clients:
            return 0
        assert self.state.directions is not None
        replies = self._cold_start(clients, r)
        changes = {key: self._changes(update.vector[np.newaxis])[0] for key, update in replies.ok}
        found = {key: nearest_direction(change, self.state.directions) for key, change in changes.items()}
        self._note(found, counts)
        return len(found)

    def _note(self, found: Mapping[str, int], counts: Mapping[str, IntArray]) -> None:
        self.assignment.update(found)
        self.state.label_counts.update({key: counts[key] for key in found if key in counts})

    def _cold_start(self, clients: Sequence[Client], r: Round) -> Replies[Update]:
        """Let clients take local steps from the one initial model (one exchange)."""
        assert self.state.reference is not None
        with r.meter.part("cold_start"):
            start, directions, known = self.state.reference, self.state.directions, 0.0
            if directions is not None:
                # One newcomer alone is compared with the largest value in the mean cold starts of the groups.
                known = float(np.abs(start.bank[0, start.layout.trained] + directions).max())
            steps = self.settings.cold_start_steps
            return ask_estimates(clients, r, start, steps=steps, known=known)

    def _changes(self, vectors: FloatArray) -> FloatArray:
        """Return what cold starts changed in the trainable parameters, (M, D)."""
        assert self.state.reference is not None
        trained = self.state.reference.layout.trained
        changes: FloatArray = vectors[:, trained] - self.state.reference.bank[0, trained]
        return changes

    def _count_labels(self, clients: Mapping[str, Client], r: Round) -> dict[str, IntArray]:
        """Ask clients for their samples of each class (one exchange), where clients migrate."""
        if self.settings.migration is None:
            return {}
        asked, num_classes = [client for _, client in sorted(clients.items())], self.num_outputs
        with r.meter.part("labels"):
            replies = r.ask_custom(LABELS, asked, lambda _, c: codec.read(LabelCounts, c, C=num_classes))
        return {key: reply.counts for key, reply in replies.ok}

    def _shifted(self, counts: Mapping[str, IntArray]) -> set[str]:
        """Return the clients whose labels have shifted since their cold start."""
        # Without a migration nobody is asked for counts.
        before, most = self.state.label_counts, self.settings.migration or 0.0
        known = counts.keys() & self.assignment.keys()
        for key in known:
            # Lost at its cold start: what it has now is what later ones are compared with.
            before.setdefault(key, counts[key])
        return {key for key in known if label_shift(before[key], counts[key]) > most}
