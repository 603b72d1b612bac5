"""Noise that hides single records: how much a budget requires, and what is spent, by Opacus' accountants."""

import logging
import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

Releases = tuple[tuple[float, float, int], ...]
"""Noise in sensitivities, rate at which records are drawn, and number, of each kind of release."""
_MOST, _LEAST = 1e6, 0.1
# Whole orders are computed fast.
_ORDERS = (*range(2, 64), 96, 128, 256, 512)


def accountants() -> Any:
    """Return the package's accountants; ValueError where it is not installed."""
    if find_spec("opacus") is None:
        raise ValueError('privacy.kind=example: needs opacus; pip install "florets[opacus]" installs it.')
    root, handlers, level = logging.root, list(logging.root.handlers), logging.root.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import opacus.accountants
    # On import Opacus gives the root logger a handler, which would show each line of the run's log a second time.
    root.handlers[:] = handlers
    root.setLevel(level)
    return opacus.accountants


@lru_cache(maxsize=4096)
def epsilon_of(releases: Releases, delta: float, width: float = math.inf) -> float:
    """Return an epsilon at most about `width` above the least one for which all releases are private.

    Two data sets are neighbours where one record is replaced by nothing: it is still counted, and adds 0 to sums.

    Source: Gopi, Lee and Wutschitz 2021; where `width` is infinite, the fast bound of Mironov, Talwar and Zhang 2019.
    """
    bound, exact = accountants().RDPAccountant(), accountants().PRVAccountant()
    bound.history, exact.history = list(releases), list(releases)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = float(bound.get_epsilon(delta, alphas=_ORDERS))
        try:
            return found if width == math.inf else min(float(exact.get_epsilon(delta, eps_error=width)), found)
        except (RuntimeError, ValueError):
            # With very little noise the privacy loss cannot be discretised.
            return found


@dataclass(frozen=True)
class Declared:
    """The guarantee for each record over so many rounds, and so many vectors of losses with `loss_noise`."""

    epsilon: float
    delta: float
    rounds: int
    losses: int
    loss_noise: float

    def __post_init__(self) -> None:
        """Raise ValueError for values that guarantee nothing."""
        bounds = (0 < self.epsilon < math.inf, 0 < self.delta < 1, self.rounds >= 1, self.losses >= 0)
        if not all(bounds) or (self.losses and not self.loss_noise > 0):
            raise ValueError(f"{self}: is no guarantee for records")

    def releases(self, noise: float, rate: float, steps: int, rounds: int, losses: int) -> Releases:
        """Return what has left a client after so many rounds, of so many steps each, and vectors of losses."""
        return tuple(one for one in ((noise, rate, rounds * steps), (self.loss_noise, 1.0, losses)) if one[2])

    def fits(self, releases: Releases, quickly: bool = False) -> bool:
        """Return whether releases keep within epsilon; `quickly`: by an upper bound of what they spend."""
        width = math.inf if quickly else min(0.01, 0.005 * self.epsilon)
        return epsilon_of(releases, self.delta, width) <= self.epsilon

    def spent(self, rate: float, steps: int, rounds: int, losses: int) -> float:
        """Return a bound of what is spent after so many rounds and vectors of losses, at most epsilon."""
        if not rounds + losses or (rounds, losses) == (self.rounds, self.losses):
            return self.epsilon if rounds else 0.0
        releases = self.releases(multiplier(self, rate, steps), rate, steps, rounds, losses)
        return min(self.epsilon, epsilon_of(releases, self.delta))


@lru_cache(maxsize=4096)
def multiplier(declared: Declared, rate: float, steps: int) -> float:
    """Return approximately the least noise of a step, in clips, with which a run keeps within epsilon."""

    def fits(noise: float, quickly: bool) -> bool:
        return declared.fits(declared.releases(noise, rate, steps, declared.rounds, declared.losses), quickly)

    # Where losses have nearly all of epsilon the bound finds no room for the rest. To be exact takes the longer, the
    # smaller epsilon is, and the further beyond it the noise.
    quickly = fits(_MOST, True)
    if not quickly and (declared.epsilon < _LEAST or not fits(_MOST, False)):
        raise ValueError("privacy.epsilon: is too small for this many rounds; raise it, or lower num_rounds")
    high = 0.25 if quickly else 1 / declared.epsilon
    while not fits(high, quickly):
        high *= 2
    # `high` always fits, even if the least lies below these intervals.
    for coarse, part in ((quickly, 0.5), (False, 0.75)):
        low = part * high
        for _ in range(6):
            middle = (low + high) / 2
            low, high = (low, middle) if fits(middle, coarse) else (middle, high)
    return high
