"""A round of discovery: clients train on folds, the server looks for groups, and the evidence says what it found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.placement import FoldTraining, Frozen
from florets.strategies.base.report import ADVICE, EVIDENCE, Client, Detail
from florets.strategies.base.round import Plan, Round
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.accountant import epsilon_of
from florets.strategies.core.cluster import canonical
from florets.strategies.core.folds import LEAST_GAIN, Groups, centred_rows, difference_p_value, discover
from florets.strategies.core.noised_groups import Release, noised_groups
from florets.strategies.core.placement import Centres, centres
from florets.strategies.core.subgroups import Node, spread, tree_of
from florets.strategies.shared.messages import QUERY_FOLDS, TRAIN_FOLDS, FoldRows, FoldUpdate
from florets.task.randomness import Purpose
from florets.task.settings import left_after
from florets.task.training.settings import Training
from florets.task.wire import codec, kinds, noise
from florets.task.wire.folds import LEARNING_RATE, MOST_ESTIMATED, RowForm, Upload
from florets.task.wire.replies import Update, read_update

Differs = Literal["nothing", "levels", "coefficients", "both"]
_DIFFERS = 0.025
"""Level at which clients are said to differ in levels, or in coefficients: 5 % for both tests together."""
_DIFFERENCES: Mapping[str, str] = {
    "levels": "levels alone",
    "coefficients": "coefficients",
    "both": "levels and coefficients",
}
_STABLE = 0.1
"""ARI between the groups of two halves of the folds below which groups are not sharp.

Planted groups of 12 and 30 clients that were found with less agreed with the truth to an ARI of 0.54 in the mean, all
others to 0.96.
"""
MOST_SHOWN = 100
"""Clients whose similarities are kept for the picture; of more, so many evenly from all groups."""
_MOST_SIZES = 12
_MOST_NAMES = 5


@dataclass(frozen=True)
class Evidence:
    """What a round's discovery found.

    Attributes
    ----------
    verdict
        "open" until enough clients have taken part, or the model has learned what they share; "too_few": groups of
        such sizes as the best ones are not found at the level, however far apart.
    k
        Groups found; the number of clients where every client differs.
    sizes
        Clients of each group.
    given
        K was given, and not found.
    p_value
        None where nothing was tested.
    candidates, scores
        Cross-validated cosine of each number of groups.
    clients, groups, similarity
        Some clients, sorted by group, the group of each, and the cosines of their mean rows.
    seen, needed
        Clients whose rows there are, and how many it takes to decide; 0 while the model still learns what all share.
    small
        Clients with too few samples for folds, placed afterwards.
    best, p_far_apart
        Of "too_few": the number of groups with the best score, and up to which value such groups have a p value,
        however far apart.
    sharp
        Groups are sharp; False: clients differ by degrees, see `core.subgroups.Spread`, or two halves of the folds
        give other groups.
    tree
        Of groups within groups: ``p_value``, ``height`` and ``parts`` of a node, ``p_value`` and ``clients`` of a
        leaf, and its ``model`` where leaves have models; None where groups are on one level.
    leaves
        Leaves of the tree, where each has a model; 0: each of the k groups has one.
    near_duplicates
        Clients with near-duplicates among their records.
    error
        Estimated fraction of the clients that noise brought into a wrong group, given that there are k; None: not
        estimated.
    epsilon
        What the search spent of `privacy.epsilon`, taken by itself; None: nothing.
    stability
        ARI between the k groups found by half of each client's folds and those found by the other half; None: there
        are no groups. It falls short of what all records find.
    p_levels, p_coefficients
        Of linear models' estimates: that clients differ in their levels (biases), given common coefficients, and in
        their coefficients, whatever their levels. None: not tested.
    """

    verdict: Literal["groups", "none", "all_differ", "too_few", "open"]
    k: int = 1
    sizes: tuple[int, ...] = ()
    given: bool = False
    p_value: float | None = None
    candidates: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    clients: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    similarity: tuple[tuple[float, ...], ...] = ()
    seen: int = 0
    needed: int = 0
    small: int = 0
    best: int = 0
    p_far_apart: float = 0.0
    sharp: bool = True
    tree: dict[str, Any] | None = None
    leaves: int = 0
    near_duplicates: int = 0
    error: float | None = None
    epsilon: float | None = None
    stability: float | None = None
    p_levels: float | None = None
    p_coefficients: float | None = None

    @classmethod
    def of(cls, groups: Groups, keys: Sequence[str], given: bool, level: float = 0.005) -> "Evidence":
        """Return the evidence of a discovery among the clients `keys`, in the order of its rows.

        Groups may be there although none were found, where even such that are far apart could not have been at the
        `level` of the test.
        """
        untested = math.isnan(groups.p_value)
        blind = groups.verdict == "none" and groups.p_far_apart > level
        verdict = "too_few" if not given and (untested or blind) else groups.verdict
        shown = np.arange(len(keys)) if groups.sample is None else groups.sample
        order = np.argsort(groups.labels[shown], kind="stable")
        if len(order) > MOST_SHOWN:
            order = order[np.linspace(0, len(order) - 1, MOST_SHOWN).round().astype(np.int64)]
        return cls(
            verdict=verdict,
            k=groups.k,
            sizes=tuple(sorted(np.bincount(groups.labels).tolist(), reverse=True)),
            given=given,
            p_value=None if untested else round(groups.p_value, 6),
            candidates=tuple(groups.candidates.tolist()),
            scores=tuple(np.round(groups.scores, 6).tolist()),
            clients=tuple(keys[row] for row in shown[order]),
            groups=tuple(groups.labels[shown[order]].tolist()),
            similarity=tuple(map(tuple, np.round(groups.similarity[np.ix_(order, order)], 3).tolist())),
            seen=len(keys),
            needed=len(keys),
            best=groups.best if verdict == "too_few" else 0,
            p_far_apart=round(groups.p_far_apart, 6) if verdict == "too_few" else 0.0,
            stability=None if groups.stability is None else round(groups.stability, 3),
        )

    @property
    def differs(self) -> Differs | None:
        """In what clients of a linear model differ, be it by groups or each by itself; None where it is not known."""
        if self.p_levels is None or self.p_coefficients is None:
            return None
        levels, coefficients = self.p_levels <= _DIFFERS, self.p_coefficients <= _DIFFERS
        if levels:
            return "both" if coefficients else "levels"
        return "coefficients" if coefficients else "nothing"

    def details(self) -> dict[str, Detail]:
        """Return it as plain values for the round's line, with its texts."""
        found: dict[str, Detail] = {
            EVIDENCE: {**asdict(self), "differs": self.differs, "text": self.text, "advice": self.advice}
        }
        return {**found, ADVICE: self.advice} if self.advice else found

    @property
    def text(self) -> str:
        """The finding in one sentence."""
        if self.verdict == "open" and self.needed == 0:
            return "the search for groups waits until the model has learned what all clients share"
        if self.verdict == "open":
            return f"the search for groups waits until {self.needed} clients have taken part ({self.seen} so far)"
        if self.verdict == "too_few":
            why = (
                f" (p cannot fall below {self.p_far_apart:.2g} however far apart; {self._figures()})"
                if self.best
                else ""
            )
            return f"groups cannot be tested for: too few records or clients{why}; one model for all"
        if self.verdict == "none" and self.given:
            return "one group of all clients, as k says; one model for all"
        if self.verdict == "none" and self.differs in ("levels", "coefficients", "both"):
            return f"no groups ({self._figures()}); one model for all; {self._difference}"
        if self.verdict == "none":
            return f"no groups: the clients cannot be told apart ({self._figures()}); one model for all"
        difference = f"; {self._difference}" if self._difference else ""
        if self.verdict == "all_differ":
            return (
                f"every client differs: groups of clients explain less than the {self.seen} clients alone "
                f"({self._figures()}); one model for all{difference}"
            )
        sizes = [str(size) for size in self.sizes[:_MOST_SIZES]]
        more = f" and {len(self.sizes) - _MOST_SIZES} smaller groups" if len(self.sizes) > _MOST_SIZES else ""
        blurred = "" if self.sharp else "clients differ, no sharp groups: "
        found = f"{blurred}{self.k} groups of {', '.join(sizes)}{more} clients"
        if self.given:
            found += ", as k says"
        after = f"; {_clients(self.small)} with too few samples placed afterwards" if self.small else ""
        nested = f"; groups within groups: {shown_tree(self.tree)}" if self.tree else ""
        nested += f", with a model for each of the {self.leaves} innermost" if self.leaves else ""
        return f"{found} ({self._figures()}){nested}{after}{difference}"

    @property
    def _difference(self) -> str:
        """In what clients differ, in words; empty where that is not known, or they do not."""
        if (words := _DIFFERENCES.get(self.differs or "nothing")) is None:
            return ""
        figures = f"levels: p = {self.p_levels:.2g}; coefficients: p = {self.p_coefficients:.2g}"
        return f"clients differ in {words} ({figures})"

    @property
    def advice(self) -> str:
        """What the user should be warned of; empty where there is nothing."""
        said = [self._advice]
        if self.near_duplicates:
            said.append(
                f"records of {_clients(self.near_duplicates)} are near-duplicates of each other, as those of one "
                "subject or device are: they were kept in one fold. Name the subjects' column (task.table.group), or "
                "leave copies out, so that test sets keep them together as well"
            )
        return ". ".join(one[:1].upper() + one[1:] if place else one for place, one in enumerate(filter(None, said)))

    @property
    def _advice(self) -> str:
        if self.epsilon is not None and self.verdict == "none" and not self.given:
            return (
                "noise hides small differences and groups of few clients, so that there may be groups: more clients, "
                "privacy.grouping or privacy.epsilon show more; or give k="
            )
        if self.differs == "levels" and not self.given:
            return (
                "the clients differ by the level of the target and not by what the inputs say of it. Compare with "
                "personal=intercept, which gives each client a level of its own"
            )
        if not self.sharp:
            return (
                "the clients differ by degrees: some members of a group are nearer to the next group than others, "
                "and another number of groups may do as well. Compare with strategy=fedavg, and with methods that "
                "give each client a model of its own (docs/algorithms/personal.md)"
            )
        if self.verdict == "all_differ":
            return (
                "every client differs from every other and groups do not help: one model for all is trained. Compare "
                "with strategy=local and with methods that give each client a model of its own "
                "(docs/algorithms/personal.md)"
            )
        if self.verdict == "too_few":
            scores = dict(zip(self.candidates, self.scores, strict=True))
            likely = f"k={self.best} fits best (score {scores[self.best]:.2f}); " if self.best in scores else ""
            return f"too few records or clients to tell groups from chance: {likely}give k=, or more records"
        return ""

    def _figures(self) -> str:
        """Return p value and scores: at the number found, its neighbours and the best."""
        words = [] if self.p_value is None else [f"p = {self.p_value:.2g}"]
        if self.epsilon is not None:
            words.append(f"epsilon {self.epsilon:.3g} was spent on this")
        if self.error is not None:
            words.append(f"about {self.error:.0%} of the clients may be in a wrong group")
        if self.scores:
            scores = dict(zip(self.candidates, self.scores, strict=True))
            best = max(scores, key=lambda k: scores[k])
            found = {"groups": self.k, "too_few": self.best}.get(self.verdict, best)
            shown = [found if found in scores else best]
            shown += [k for k in (shown[0] - 1, shown[0] + 1, best) if k in scores]
            first, *others = dict.fromkeys(shown)
            words.append(
                ", ".join([f"score {scores[first]:.2f} at K = {first}", *(f"{scores[k]:.2f} at {k}" for k in others)])
            )
        if self.stability is not None:
            words.append(f"ARI {self.stability:.2f} between the groups of two halves of the folds")
        return "; ".join(words)


def shown_tree(node: Any) -> str:
    """Return a tree of `Evidence` in words, ``(5 + 5) + 10``: sums are groups of one level."""
    if "clients" in node:
        return str(len(node["clients"]))
    parts = [shown_tree(part) for part in node["parts"]]
    return " + ".join(
        f"({text})" if "parts" in part else text for part, text in zip(node["parts"], parts, strict=True)
    )


def _plain(node: Node, keys: Sequence[str], models: IntArray | None = None) -> dict[str, Any]:
    """Return a tree of rows as `Evidence` has it; `models` (M,) are the rows' where leaves have models."""
    p_value = {"p_value": None if math.isnan(node.p_value) else round(node.p_value, 6)}
    if not node.parts:
        model = {} if models is None else {"model": int(models[node.members[0]])}
        return {**p_value, **model, "clients": [keys[row] for row in node.members]}
    parts = [_plain(part, keys, models) for part in node.parts]
    return {**p_value, "height": round(node.height, 4), "parts": parts}


def no_group_fits(keys: Sequence[str]) -> str:
    """Return what is to be said of clients that no group fits."""
    more = f" and {len(keys) - _MOST_NAMES} more" if len(keys) > _MOST_NAMES else ""
    return (
        f"no group fits client {', '.join(keys[:_MOST_NAMES])}{more}: left out of the training; look at its data, "
        "or train a model there alone (strategy=local)"
    )


def _clients(count: int) -> str:
    return f"{count} client{'' if count == 1 else 's'}"


_NOISED_FOLDS, _NOISED_STEPS = 2, 4
NOISED_SIZE, NOISED_WIDTH, OWN_NOISE_WIDTH = 30, 16, 8
"""Samples of a fold; entries of a row for noised sums, and of one to each entry of which a client adds noise."""
FEW_CLIENTS = 6
"""Up to so many clients, eight folds: with four the permutation test has too few arrangements."""
EIGHT_FOLDS = 40
"""Samples of a client that eight folds take."""
ARRANGEMENTS = 600
"""Least number of arrangements of one client against the others, where few clients with fewer samples are tested.
Three times what a p value of 0.5 % takes, so that chance does not decide. Each fold multiplies them by the
number of clients."""
LEAST_OF_TESTED = 16
"""Samples of a client that takes part in such a test: it has five to seven folds."""
THREE_FOLDS = 40
"""Samples below which three folds are better than four."""
ENOUGH = 48
"""Samples of a client from which on discovery works well: four folds of 12."""
LEAST = 24
"""Samples below which a client does not decide how large all folds are, as long as half of the others have more."""
LEAST_SIZE = 8
"""Samples of a fold below which a client has no folds where others have more: it is placed afterwards."""
NEAR_MEDIAN = 0.75
"""Share of the median client's samples from which on a client has folds of the largest size."""
SMALLER = (1 / 2, 1 / 4)
"""Of the largest size, the least ones of the two further classes of sizes in which clients are tested."""
MOST = 400
"""Samples that are used: four folds of 100. Larger ones say little more, and cost as much more."""
MOST_FINE = 148
"""The same for a regression's trained model, whose few small steps say little more than one does.

With fewer of them on more samples a row costs the same and has less noise.
"""
LEAST_STEPS, ENOUGH_STEPS, MOST_STEPS = 2, 4, 10
"""On folds; more than enough where samples are few."""
STEPS_OF_EIGHT, PASSES_OF_EIGHT = 4, 384
FINE_RATE = 0.001
"""Learning rate on the folds at a regression's model which has been trained.

Groups may then be nearer to it than steps of 0.02, and such steps would pass them by.
"""
LEAST_PASSES = 180
"""Of a sample through the model and back, on all folds: few samples must be seen more often."""
OF_LOCAL = 2.0
"""Passes on the folds for each one of a local training: in steps on whole folds, all folds side by side, two take
about the time of one in batches."""
MOST_PASSES_FINE = 300


@dataclass(frozen=True)
class FoldPlan:
    """What every client trains for discovery: the same steps for all, and the same number of samples for most.

    Attributes
    ----------
    folds
        Disjoint parts of a client's data.
    size
        Samples of each. A client with too few samples for that has smaller ones, see `size_of`.
    steps, rate
        Of Adam on each, every one on the whole fold.
    smaller
        Sizes of further classes of clients, the larger first.
    """

    folds: int
    size: int
    steps: int
    rate: float = LEARNING_RATE
    smaller: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Samples that a client needs for it; one with more draws so many."""
        return self.folds * self.size

    def size_of(self, count: int) -> int:
        """Return the samples of each fold of a client with so many samples; 0: it has no folds.

        Smaller folds than the others' make noisier rows, which still say more of the groups, above all of one whose
        clients all have few samples, than placing these clients afterwards. The test leaves those out whose size is
        that of no class.
        """
        most = count // self.folds
        size = next((size for size in (self.size, *self.smaller) if size <= most), most)
        return size if size in (self.size, *self.smaller) or size >= LEAST_SIZE else 0

    def class_of(self, size: int) -> int:
        """Return the class of folds of a size, 0 for the largest; -1: of none."""
        sizes = (self.size, *self.smaller)
        return sizes.index(size) if size in sizes else -1

    @classmethod
    def of(
        cls, counts: Sequence[int], fine: bool = False, tests: bool = False, training: Training | None = None
    ) -> "FoldPlan":
        """Return the plan for clients with so many samples, at least one client; `fine` for a model that was trained.

        `tests`: whether there are groups is to be found. Few clients with few samples then have as many folds as the
        test takes; where K is given larger folds are better. `training` is the local one, which says what folds may
        cost; None: an epoch.

        The test for groups is exact only among folds of one size. The largest size is that of the smallest client
        near the median, as many as it can fill; where few clients have enough samples, that of three of four of those
        that have a few. Clients with fewer come in up to two further classes, each as large as its smallest
        client can fill.
        """
        rate = FINE_RATE if fine else LEARNING_RATE
        counts = sorted(counts)
        enough = [count for count in counts if count >= ENOUGH]
        fair = [count for count in counts if count >= LEAST]
        if 2 * len(enough) >= len(counts):
            near = 0.0 if len(counts) <= FEW_CLIENTS else NEAR_MEDIAN * min(counts[len(counts) // 2], MOST)
            smallest = next(count for count in enough if count >= near)
        elif 2 * len(fair) >= len(counts):
            smallest = fair[len(fair) // 4]
        else:
            smallest = counts[len(counts) // 4]
        tested = _tested(counts) if tests and smallest < EIGHT_FOLDS else []
        if len(tested) > 2:
            smallest = tested[0]
        local = OF_LOCAL * (smallest if training is None else training.num_passes(smallest))
        if len(counts) <= FEW_CLIENTS and smallest >= EIGHT_FOLDS:
            samples = min(smallest, MOST)
            steps = min(max(round(max(PASSES_OF_EIGHT, local) / samples), LEAST_STEPS), STEPS_OF_EIGHT)
            return cls(8, samples // 8, steps, rate)
        # One sample leaves no fold over: a client without more is placed afterwards.
        samples = max(2, min(smallest, MOST_FINE if fine else MOST))
        folds = min(3 if samples < THREE_FOLDS else 4, samples)
        if len(tested) > 2:
            folds = 1 + math.ceil(math.log(ARRANGEMENTS) / math.log(len(tested)))
        passes = min(max(LEAST_PASSES, min(local, ENOUGH_STEPS * samples)), MOST_PASSES_FINE if fine else math.inf)
        steps = min(max(round(passes / samples), LEAST_STEPS), MOST_STEPS)
        size = samples // folds
        return cls(folds, size, steps, rate, _smaller([count // folds for count in counts], size) if tests else ())


def _smaller(most: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the sizes of further classes, of clients whose folds hold so many samples at most, in rising order."""
    sizes = [size]
    for share in SMALLER:
        of_class = [each for each in most if max(LEAST_SIZE, share * size) <= each < sizes[-1]]
        sizes += of_class[:1]
    return tuple(sizes[1:])


def _tested(counts: Sequence[int]) -> list[int]:
    """Return the sorted counts of few clients, without those that have less than half of what the median one has."""
    if len(counts) > FEW_CLIENTS:
        return []
    return [count for count in counts if count >= max(LEAST_OF_TESTED, counts[len(counts) // 2] / 2)]


@dataclass(frozen=True)
class Found:
    """What a discovery found: the number of models, the clients' groups, and how newcomers are placed.

    Attributes
    ----------
    count
        Groups to train a model for: 1 where there are none, or every client differs.
    assignment
        Group of each client that has one, by key.
    centres
        None where there is one group.
    """

    count: int
    assignment: dict[str, int]
    centres: Centres | None
    evidence: Evidence


@dataclass
class FoldRound:
    """Rows of the clients that have trained the common model on folds of their data.

    Attributes
    ----------
    common
        The model that all rows come from.
    plan, form
        Folds and steps, and how rows are sent; the same for all clients.
    seed
        Draws what a compressed row holds.
    held_out
        Clients keep some of their samples for losses, and train on the others alone.
    place_one_class
        Clients whose records are all of one class send one row and are placed afterwards.
    rows
        By client, (m, width).
    short
        Samples of each fold of clients whose folds are smaller than the others'.
    alike
        Clients with near-duplicates among their records.
    noised
        Rows are for sums with noise, or hold noise: folds are the same for all clients.
    estimates
        Rows hold a linear model's exact estimates in addition to what steps on the folds change.
    small
        Of clients with too few samples for folds, or too few that differ, or that learned nothing on some fold, and
        of those with one class where `place_one_class` is set: one row, (1, width).
    """

    common: Models
    plan: FoldPlan
    form: RowForm
    seed: int
    held_out: bool = False
    place_one_class: bool = False
    rows: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    small: dict[str, NDArray[np.floating]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    alike: set[str] = field(default_factory=set)
    noised: bool = False
    estimates: bool = False

    @classmethod
    def begin(
        cls,
        r: Round,
        upload: Upload = "projection",
        fine: bool = False,
        place_one_class: bool = False,
        tests: bool = True,
        noised_size: int = NOISED_SIZE,
    ) -> "FoldRound":
        """Fix the common model, the first of the round's, and the folds, by the samples of all who are online.

        With noise folds are of `noised_size` samples and depend on no client's data. `tests`: whether there are
        groups is to be found; see `FoldPlan.of`.
        """
        if r.privacy is not None:
            default = OWN_NOISE_WIDTH if r.privacy.is_local else NOISED_WIDTH
            models = r.models
            form = RowForm.of("projection", default, int(models.layout.trained.sum()), _NOISED_FOLDS)
            common = models if models.count == 1 else models.replaced(models.bank[:1])
            return cls(common, FoldPlan(_NOISED_FOLDS, noised_size, _NOISED_STEPS), form, r.seed, noised=True)
        held_out = r.config.get(kinds.LOSS_DATA) == kinds.HELD_OUT
        counts = [_samples(client, held_out) for client in r.online]
        estimates, models = sends_estimates(r), r.models
        plan = FoldPlan.of(counts, fine and not estimates, tests, Training.received(r.config))
        common = models if models.count == 1 else models.replaced(models.bank[:1])
        size = int(models.layout.trained.sum()) * (2 if estimates else 1)
        form = RowForm.of(upload, None, size, plan.folds)
        return cls(common, plan, form, r.seed, held_out, place_one_class, estimates=estimates)

    def __contains__(self, key: str) -> bool:
        return key in self.rows or key in self.small

    def emptied(self) -> "FoldRound":
        """Return it without the rows: what newcomers need."""
        kept = (self.common, self.plan, self.form, self.seed, self.held_out, self.place_one_class)
        return FoldRound(*kept, noised=self.noised, estimates=self.estimates)

    def size_of(self, client: Client) -> int:
        """Return the samples of each of a client's folds, see `FoldPlan.size_of`."""
        if self.noised:
            return self.plan.size
        return self.plan.size_of(_samples(client, self.held_out))

    def sure_size_of(self, client: Client) -> int:
        """Return the samples of each fold of a newcomer; 0: one row of all its data, for the nearest group.

        Much smaller folds than the others' are too noisy to say that no group fits.
        """
        size = self.size_of(client)
        return size if 2 * size >= self.plan.size else 0

    def _sizes(self, clients: Sequence[Client]) -> dict[str, int]:
        """Return the samples of each client's folds, and note whose are smaller than the others'."""
        sizes = {client.key: self.size_of(client) for client in clients}
        self.short |= {key: size for key, size in sizes.items() if 0 < size < self.plan.size}
        return sizes

    def train(self, r: Round) -> Plan[Update]:
        """Plan the exchange in which every participant trains the bank's first model.

        Those without rows train the common model on their folds as well.
        """
        layout, model = r.models.layout, r.models.one(0)
        others = None if r.models.bank[:1].tobytes() == self.common.bank.tobytes() else self.common.one(0)
        extra = {} if others is None else {kinds.COMMON: others}
        new = self._sizes([client for client in r.participants if client.key not in self])
        if r.privacy is not None:
            r.privacy.charge_grouping(list(new))
        requests = []
        for client in r.participants:
            if client.key in new:
                settings = {**r.averaging.settings, **self._settings(new[client.key])}
                requests.append(r.request_custom(TRAIN_FOLDS, client, model, settings, extra))
            else:
                requests.append(r.request(kinds.TRAIN, client, model, r.averaging.settings))

        def read(key: str, content: RecordDict) -> Update:
            if key in new:
                return codec.read(
                    FoldUpdate, content, layout=layout, model=0, form=self.form, folds=self._folds(new[key])
                )
            return read_update(content, layout, 0)

        return Plan(requests, read)

    def ask_again(self, r: Round) -> Replies[FoldRows]:
        """Ask all clients for their rows and nothing else (one exchange)."""
        return self._ask(r.online, self._sizes(r.online), r)

    def _ask(self, clients: Sequence[Client], sizes: Mapping[str, int], r: Round) -> Replies[FoldRows]:
        if r.privacy is not None:
            r.privacy.charge_grouping([client.key for client in clients])
        requests = [
            r.request_custom(
                QUERY_FOLDS, client, self.common.one(0), self._settings(sizes[client.key]), category="query"
            )
            for client in clients
        ]
        return r.ask(
            requests,
            lambda key, content: codec.read(FoldRows, content, form=self.form, folds=self._folds(sizes[key])),
        )

    def take(self, replies: Sequence[tuple[str, Update | FoldRows]]) -> None:
        """Keep the rows that came."""
        for key, reply in replies:
            if self.noised and isinstance(reply, FoldUpdate | FoldRows):
                whole = len(reply.rows) == self.plan.folds
                rows = reply.rows if whole else noise.noised_rows(reply.rows, self.plan.folds, 0.0)
                self.rows[key] = rows.astype(np.float32)
                continue
            # Nobody knows where a client belongs that has learned nothing; its update counts all the same.
            if isinstance(reply, FoldUpdate | FoldRows) and len(reply.rows) > 0:
                self.alike |= {key} if reply.near_duplicates else set()
                # As exact as they were sent, in half of the memory and of the checkpoint.
                kept = np.float32 if self.form.upload == "full" else np.float16
                (self.small if len(reply.rows) == 1 else self.rows)[key] = reply.rows.astype(kept)

    def decide(
        self,
        k: int | None,
        r: Round,
        level: float = 0.005,
        least_gain: float = LEAST_GAIN,
        subgroups: bool = False,
    ) -> Found:
        """Say whether the clients fall into groups, how many (k; None: to be found) and which; then place the others.

        See `core.folds.discover` for `level` and `least_gain`; the others are clients with too few samples. With
        `subgroups` the groups are the leaves of the tree of groups within groups, where there is one.
        """
        keys = sorted(self.rows)
        if self.noised and r.privacy is not None and keys:
            return self._decide_noised(r.privacy, keys, k, r, level)
        if len(keys) < 2:
            everybody = dict.fromkeys([*keys, *sorted(self.small)], 0)
            return Found(1, everybody, None, Evidence("too_few", seen=len(keys), needed=2))
        folds = np.stack([self.rows[key] for key in keys]).astype(np.float64)
        r.note_vectors("updates", keys, folds.mean(axis=1))
        wanted = None if k is None else min(k, len(keys))
        rng = r.random(Purpose.FOLD_TEST)
        # Twice as many as a p value at the level takes: one of them may reach the score.
        permutations = math.ceil(2 / level - 1e-9) - 1
        tested = np.array([key not in self.short for key in keys])
        classes = np.array([self.plan.class_of(self.short.get(key, self.plan.size)) for key in keys])
        groups = discover(
            folds,
            wanted,
            level=level,
            least_gain=least_gain,
            permutations=permutations,
            rng=rng,
            tested=tested,
            classes=classes,
        )
        evidence = replace(Evidence.of(groups, keys, k is not None, level), near_duplicates=len(self.alike))
        if k is None and self.estimates:
            evidence = self._with_difference(evidence, folds, classes, permutations, rng)
        labels = groups.labels
        if k is None and groups.verdict == "groups":
            sharp, tree = self._structure(folds, groups, tested, level, rng)
            evidence = replace(evidence, sharp=sharp)
            if tree is not None and subgroups:
                labels = tree.labels(len(keys))
                evidence = replace(evidence, tree=_plain(tree, keys, labels), leaves=len(tree.leaves))
            elif tree is not None:
                evidence = replace(evidence, tree=_plain(tree, keys))
        if groups.verdict != "groups":
            return Found(1, dict.fromkeys(sorted({*keys, *self.small}), 0), None, evidence)
        found = dict(zip(keys, labels.tolist(), strict=True))
        directions = centres(folds, labels)
        frozen = self.frozen(directions)
        found |= {key: frozen.place_rows(row, in_run=True)[0] for key, row in sorted(self.small.items())}
        evidence = replace(evidence, small=len(self.small))
        return Found(len(directions.directions), found, directions, evidence)

    def _with_difference(
        self, evidence: Evidence, folds: FloatArray, classes: IntArray, permutations: int, rng: np.random.Generator
    ) -> Evidence:
        """Say in what clients of a linear model differ, unless rows were compressed, or there are no levels."""
        layout = self.common.layout
        levels = layout.entries[-1].size if len(layout.entries) > 1 else 0
        if self.form.upload != "full" or not 0 < levels < layout.size or evidence.p_value is None:
            return evidence
        own, tested = folds[:, :, layout.size :], classes >= 0
        p_levels, p_coefficients = (
            difference_p_value(part[tested], permutations, rng, classes[tested])
            for part in (own[:, :, -levels:], own[:, :, :-levels])
        )
        return replace(evidence, p_levels=round(p_levels, 6), p_coefficients=round(p_coefficients, 6))

    def _decide_noised(self, guard: Any, keys: Sequence[str], k: int | None, r: Round, level: float) -> Found:
        """Do as `decide` from noised sums over the clients, or from rows that they noised; see `core.noised_groups`.

        Which group a client joins then depends on its own rows and on what was released, and the server alone knows
        it (`privacy.kind=central`), or on what the client sent (`local`).
        """
        rows = np.stack([self.rows[key] for key in keys]).astype(np.float64)
        part = guard.budget.grouping
        release = None
        if not guard.is_local:

            def add(total: FloatArray, norm: float, parts: int) -> FloatArray:
                noised: FloatArray = guard.noised_sum(keys, total, norm, parts)
                return noised

            release = Release(add, guard.grouping_noise)
        found = noised_groups(rows, k, level, r.random(Purpose.FOLD_TEST), release)
        spent = part if guard.is_local else part * found.parts
        has_groups = found.k > 1
        sizes = tuple(sorted(np.bincount(found.labels, minlength=found.k).tolist(), reverse=True))
        evidence = Evidence(
            "groups" if has_groups else "none",
            found.k,
            sizes,
            given=k is not None,
            p_value=found.p_value,
            seen=len(keys),
            needed=len(keys),
            # Noise that leaves a group empty leaves nothing to estimate either.
            error=found.error if has_groups and all(sizes) else None,
            epsilon=epsilon_of(math.sqrt(spent), guard.budget.delta),
        )
        directions = Centres(found.origin, found.directions, np.zeros(found.k)) if has_groups else None
        return Found(found.k, dict(zip(keys, found.labels.tolist(), strict=True)), directions, evidence)

    def _structure(
        self,
        folds: FloatArray,
        groups: Groups,
        tested: NDArray[np.bool_],
        level: float,
        rng: np.random.Generator,
    ) -> tuple[bool, Node | None]:
        """Return whether the groups found are sharp, and the tree of groups within groups; None: one level."""
        among = np.flatnonzero(tested) if groups.sample is None else groups.sample[tested[groups.sample]]
        labels = canonical(groups.labels[among])
        if not labels.any():
            return True, None
        by_chance = groups.stability is not None and groups.stability < _STABLE
        if by_chance or not spread(centred_rows(folds[among]), labels, rng).is_sharp:
            return False, None
        # Of more clients than are searched the others have no place in a tree.
        if groups.sample is not None:
            return True, None
        tree = tree_of(folds, groups.labels, groups.p_value, level, rng, tested)
        return True, tree if tree.depth > 1 else None

    def place(self, clients: Sequence[Client], groups: Centres, r: Round) -> tuple[dict[str, int], set[str]]:
        """Return the group of each of these clients, as far as its rows arrive, and those that no group fits."""
        placed: dict[str, int] = {}
        unfit: set[str] = set()
        frozen = self.frozen(groups)
        sizes = {client.key: self.sure_size_of(client) for client in clients}
        for key, reply in self._ask(clients, sizes, r).ok:
            group = frozen.place_rows(reply.rows, in_run=True)[0] if len(reply.rows) else -1
            if group < 0:
                unfit.add(key)
            else:
                placed[key] = group
        return placed, unfit

    def frozen(self, groups: Centres) -> Frozen:
        """Return what a new client is assigned by."""
        plan = self.plan
        training = FoldTraining(plan.folds, plan.size, plan.steps, plan.rate, self.form, self.estimates)
        placing = Frozen("folds", groups.directions, self.common, origin=groups.origin, scale=groups.usual)
        return replace(placing, seed=self.seed, training=training)

    def _folds(self, size: int) -> int:
        return self.plan.folds if size > 0 else 1

    def _settings(self, size: int) -> dict[str, str | float]:
        # Only what is not usual: every message costs its bytes.
        rate = {} if self.plan.rate == LEARNING_RATE else {kinds.FOLD_RATE: self.plan.rate}
        classes = {kinds.FOLD_CLASSES: True} if self.place_one_class else {}
        estimates = {kinds.FOLD_ESTIMATES: True} if self.estimates else {}
        return {
            **rate,
            **classes,
            **estimates,
            kinds.NUM_FOLDS: self._folds(size),
            kinds.FOLD_SIZE: size or self.plan.size,
            kinds.FOLD_STEPS: self.plan.steps,
            kinds.FOLD_UPLOAD: self.form.upload,
            kinds.FOLD_WIDTH: self.form.width,
            kinds.FOLD_SEED: self.seed,
        }


def sends_estimates(r: Round) -> bool:
    """Return whether rows hold exact estimates: clients train by Newton's steps, and the model looks linear.

    It is a matrix and at most a vector of as many levels. Whether it is linear a client knows.
    """
    shapes = [entry.shape for entry in r.models.layout.entries]
    looks = len(shapes[0]) == 2 and shapes[1:] in ([], [shapes[0][:1]])
    training = Training.received(r.config)
    return looks and training.solver == "newton" and r.models.layout.size <= MOST_ESTIMATED


def _samples(client: Client, held_out: bool) -> int:
    """Return how many samples a client trains on, of those that it introduced itself with."""
    return left_after(client.num_examples) if held_out else client.num_examples
