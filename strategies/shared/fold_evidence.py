"""Evidence of a search for groups: scores, p-values and what they mean, in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from florets.strategies.base.report import ADVICE, EVIDENCE, Detail, named
from florets.strategies.core.folds import Groups

Differs = Literal["nothing", "levels", "coefficients", "both"]
_DIFFERS = 0.025
"""Level at which clients are said to differ in levels, or in coefficients: 5 % for both tests together."""
_DIFFERENCES: Mapping[str, str] = {
    "levels": "levels alone",
    "coefficients": "coefficients",
    "both": "levels and coefficients",
}
STABLE = 0.1
"""ARI between the groups of two halves of the folds below which groups are not sharp."""
MOST_SHOWN = 100
"""Clients whose similarities are kept for the picture; of more, so many evenly from all groups."""
_MOST_SIZES = 12


@dataclass(frozen=True)
class Evidence:
    """What a round's discovery found; figures are those of `core.folds.Groups`."""

    # Open: until enough have taken part; too_few: such groups are not found at the level, however far apart
    verdict: Literal["groups", "none", "all_differ", "too_few", "open"]
    k: int = 1
    sizes: tuple[int, ...] = ()
    given: bool = False  # K was given, and not found
    p_value: float | None = None
    scores: tuple[float, ...] = ()
    clients: tuple[str, ...] = ()  # Some, sorted by group; the group of each, and the cosines of their mean rows
    groups: tuple[int, ...] = ()
    similarity: tuple[tuple[float, ...], ...] = ()
    seen: int = 0  # Clients whose rows there are, and how many it takes; 0 while the model learns what all share
    needed: int = 0
    small: int = 0  # Clients with too few samples for folds, placed afterwards
    best: int = 0
    sharp: bool = True  # False: clients differ by degrees, or halves of the folds give other groups
    stability: float | None = None
    # Of linear models: that clients differ in levels, given common coefficients, and in coefficients
    p_levels: float | None = None
    p_coefficients: float | None = None

    @classmethod
    def of(cls, groups: Groups, keys: Sequence[str], given: bool, level: float = 0.005) -> "Evidence":
        """Return the evidence of a discovery among the clients `keys`, in the order of its rows."""
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
            scores=tuple(np.round(groups.scores, 6).tolist()),
            clients=tuple(keys[row] for row in shown[order]),
            groups=tuple(groups.labels[shown[order]].tolist()),
            similarity=tuple(map(tuple, np.round(groups.similarity[np.ix_(order, order)], 3).tolist())),
            seen=len(keys),
            needed=len(keys),
            best=groups.best if verdict == "too_few" else 0,
            stability=None if groups.stability is None else round(groups.stability, 3),
        )

    @property
    def differs(self) -> Differs | None:
        """In what clients of a linear model differ, be it by groups or each by itself; None: not known."""
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
            clients = "1 client has" if self.needed == 1 else f"{self.needed} clients have"
            return f"the search for groups waits until {clients} taken part ({self.seen} so far)"
        if self.verdict == "too_few":
            why = f" ({self._figures()})" if self.best else ""
            return f"groups cannot be tested for: too few records or clients{why}; one model for all"
        if self.verdict == "none" and self.given:
            return "one group of all clients, as k says; one model for all"
        if self.verdict == "none":
            why = "" if self._difference else ": the clients cannot be told apart"
            return f"no groups{why} ({self._figures()}); one model for all{self._difference}"
        if self.verdict == "all_differ":
            return (
                f"every client differs: groups of clients explain less than the {self.seen} clients alone "
                f"({self._figures()}); one model for all{self._difference}"
            )
        sizes = [str(size) for size in self.sizes[:_MOST_SIZES]]
        more = f" and {len(self.sizes) - _MOST_SIZES} smaller groups" if len(self.sizes) > _MOST_SIZES else ""
        blurred = "" if self.sharp else "clients differ, no sharp groups: "
        found = f"{blurred}{self.k} groups of {', '.join(sizes)}{more} clients"
        if self.given:
            found += ", as k says"
        plural = "" if self.small == 1 else "s"
        after = f"; {self.small} client{plural} with too few samples placed afterwards" if self.small else ""
        return f"{found} ({self._figures()}){after}{self._difference}"

    @property
    def _difference(self) -> str:
        """In what clients differ, in words; empty where that is not known, or they do not."""
        if (words := _DIFFERENCES.get(self.differs or "nothing")) is None:
            return ""
        figures = f"levels: p = {self.p_levels:.2g}; coefficients: p = {self.p_coefficients:.2g}"
        return f"; clients differ in {words} ({figures})"

    @property
    def advice(self) -> str:
        """What the user should be warned of; empty where there is nothing."""
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
            likely = f"k={self.best} fits best (score {self.scores[self.best - 2]:.2f}); " if self.best else ""
            return f"too few records or clients to tell groups from chance: {likely}give k=, or more records"
        return ""

    def _figures(self) -> str:
        """Return the p value, and the score of the number found, or else of the best."""
        words = [] if self.p_value is None else [f"p = {self.p_value:.2g}"]
        if self.scores:
            best = int(np.argmax(self.scores)) + 2
            found = {"groups": self.k, "too_few": self.best}.get(self.verdict, best)
            shown = found if 2 <= found < len(self.scores) + 2 else best
            words.append(f"score {self.scores[shown - 2]:.2f} at K = {shown}")
        if self.stability is not None:
            words.append(f"ARI {self.stability:.2f} between the groups of two halves of the folds")
        return "; ".join(words)


def no_group_fits(keys: Sequence[str]) -> str:
    """Return what is to be said of clients that no group fits."""
    return (
        f"no group fits client {named(keys)}: left out of the training; look at its data, "
        "or train a model there alone (strategy=local)"
    )
