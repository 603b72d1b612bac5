"""Quarantine: a client whose updates depart from its group's round after round does not count until they agree."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.outliers import lower_median
from florets.strategies.core.robust import LEAST_GROUP, geometric_median

ROUNDS = 3
"""Consecutive rounds in which a client's update departs before quarantine, and agrees before it counts again."""
PROBATION = 2
"""Rounds for which a far client is set aside before it is judged: by then the others' groups have separated."""
COMMON = 0.3
"""Least median agreement of a group's members with which any of them is judged."""
SPREADS = 4.0
"""Robust standard deviations below the group's median agreement at which an update departs."""
LONG = 3.0
"""Length of an update, relative to the longest of the median member so far, above which noise departs as well."""
FAINT = 0.1
"""Relative length of an update up to which it does no harm: a group trained to its end has no direction."""

UNKNOWN, AGREES, DEPARTS = 0, 1, -1


def agreement(gram: FloatArray, trusted: BoolArray) -> FloatArray:
    """Return the cosine (n,) of each member's change with the geometric median of the other `trusted` ones'."""
    lengths = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(np.float64).tiny))
    cosines = gram / np.outer(lengths, lengths)
    shares = np.zeros(len(gram))
    shares[trusted] = geometric_median(cosines[np.ix_(trusted, trusted)], np.ones(int(trusted.sum())))
    along = cosines @ shares
    # Without the member's own share.
    squares = shares @ along - 2.0 * shares * along + shares**2
    found: FloatArray = (along - shares) / np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    return found


def verdicts(gram: FloatArray, trusted: BoolArray, usual: float = 0.0) -> tuple[IntArray, FloatArray]:
    """Return what one round says of each member of a group, (n,), and its `agreement` (n,).

    With mu the median agreement of the trusted members and s its robust standard deviation, a member `DEPARTS`
    `SPREADS` s below mu and below -mu / 2 (mu / 4 if its change is `LONG`, but never if `FAINT`), and `AGREES` above
    mu / 4. `usual` is the largest squared median length so far. Nobody is judged if mu is below `COMMON`.
    """
    unknown = np.full(len(gram), UNKNOWN), np.zeros(len(gram))
    if trusted.sum() < LEAST_GROUP - 1 or len(gram) < LEAST_GROUP:
        return unknown
    cosines = agreement(gram, trusted)
    middle = lower_median(cosines[trusted])
    if middle < COMMON:
        return unknown
    spread = 1.4826 * float(np.median(np.abs(cosines[trusted] - middle)))
    squares = np.diagonal(gram)
    is_long = squares > LONG**2 * max(lower_median(squares[trusted]), usual)
    far = (cosines < middle - SPREADS * spread) & (cosines < np.where(is_long, middle / 4, -middle / 2))
    far &= squares > FAINT**2 * usual
    return np.where(far, DEPARTS, np.where(cosines >= middle / 4, AGREES, UNKNOWN)), cosines


@dataclass
class Record:
    """`rounds` running in which a client's update departed in one group, or in quarantine agreed."""

    model: int = -1
    rounds: int = 0

    def count(self, model: int, is_one: bool) -> int:
        """Take in one more round; return how many there are."""
        before = self.rounds if self.model == model else 0
        self.model, self.rounds = model, before + 1 if is_one else 0
        return self.rounds


@dataclass
class Quarantine:
    """Who is in quarantine (`clients`; in this round `entered`), and who may soon be (`suspects`)."""

    suspects: dict[str, Record] = field(default_factory=dict)
    clients: dict[str, Record] = field(default_factory=dict)
    entered: list[str] = field(default_factory=list)
    # First round in which what a client is grouped by was far from all others'; 0: it was judged
    far: dict[str, int] = field(default_factory=dict)
    probation: set[str] = field(default_factory=set)  # Of these, whose updates of this round do not count
    # By model: largest squared length of its median member's change
    usual: dict[str, float] = field(default_factory=dict)
    cleared: set[str] = field(default_factory=set)  # Have left quarantine: only their updates can bring them back

    def begin_round(self) -> None:
        """Forget what is of the last round alone."""
        self.entered, self.probation = [], set()

    def is_judged(self, key: str, is_far: bool, server_round: int) -> bool:
        """Take in whether a client is far in this round; return whether it is to be judged, after its probation."""
        # Once far, a client is judged when its probation ends, though the others may be as far apart by then.
        if key in self.clients or not (is_far or self.far.get(key, 0)):
            return False
        first = self.far.setdefault(key, server_round)
        if first and server_round - first < PROBATION:
            self.probation.add(key)
            return False
        self.far[key] = 0
        return True

    def enter(self, keys: Iterable[str]) -> None:
        """Take clients into quarantine."""
        for key in keys:
            self.suspects.pop(key, None)
            self.clients[key] = Record()
            self.entered.append(key)

    def observe(self, model: int, keys: Sequence[str], gram: FloatArray, most: int) -> list[str]:
        """Judge a group's members by inner products (n, n) of their changes; return who has left quarantine.

        At most `most` may be in quarantine at a time: of more that depart, those that agree least. Nothing is said
        where the trusted are no majority against all that may yet be hostile.
        """
        trusted = np.array([key not in self.clients for key in keys])
        free = max(most - int((~trusted).sum()), 0)
        if trusted.any():
            length = lower_median(np.diagonal(gram)[trusted])
            self.usual[str(model)] = max(self.usual.get(str(model), 0.0), float(length))
        found, cosines = verdicts(gram, trusted, self.usual.get(str(model), 0.0))
        if trusted.sum() <= 2 * free:
            found[:] = UNKNOWN
        due, back = [], []
        for row, key in enumerate(keys):
            if found[row] == UNKNOWN:
                continue
            if key in self.clients:
                if self.clients[key].count(model, found[row] == AGREES) >= ROUNDS:
                    back.append(key)
            elif self.suspects.setdefault(key, Record()).count(model, found[row] == DEPARTS) >= ROUNDS:
                due.append((float(cosines[row]), key))
        new = sorted(key for _, key in sorted(due)[:free])
        self.enter(new)
        for key in back:
            del self.clients[key]
        self.cleared.update(back)
        return back
