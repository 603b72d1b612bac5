"""Noise that hides one record: of how many it takes for a budget, and what was spent, by Opacus' accountants."""

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

Releases = tuple[tuple[float, float, int], ...]
"""Noise in sensitivities, rate at which records are drawn, and number, of each kind of release."""

_MOST = 1e6
# Whole orders are computed fast.
_ORDERS = (*range(2, 64), 96, 128, 256, 512)
_NEAR = 0.005


def require_opacus() -> None:
    """Raise ValueError where the package is not installed."""
    if find_spec("opacus") is None:
        raise ValueError('privacy.kind=example: needs opacus; pip install "florets[opacus]" installs it.')


def _accountants() -> Any:
    require_opacus()
    # Costs seconds, and warns of features that nothing here uses.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import accountants
    return accountants


def epsilon_of(releases: Releases, delta: float, width: float) -> float:
    """Return an epsilon that is at most about `width` above the least one for which all releases are private.

    Two data sets are neighbours where one record is replaced by nothing: it is still counted, and adds 0 to sums.

    Source: Gopi, Lee and Wutschitz 2021; Mironov, Talwar and Zhang 2019, of which the lower bound counts.
    """
    accountant = _accountants().PRVAccountant()
    accountant.history = list(releases)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return min(float(accountant.get_epsilon(delta, eps_error=width)), bound_of(releases, delta))
        except (RuntimeError, ValueError):
            # Of hardly any noise: the loss cannot be resolved.
            return bound_of(releases, delta)


def bound_of(releases: Releases, delta: float) -> float:
    """Return a bound of `epsilon_of`, in a moment: that of Renyi's divergences."""
    rdp = _accountants().analysis.rdp
    curve = sum(count * _curve(deviation, rate) for deviation, rate, count in releases if count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(rdp.get_privacy_spent(orders=_ORDERS, rdp=curve, delta=delta)[0])


@lru_cache(maxsize=4096)
def _curve(deviation: float, rate: float) -> Any:
    return _accountants().analysis.rdp.compute_rdp(q=rate, noise_multiplier=deviation, steps=1, orders=_ORDERS)


@dataclass(frozen=True)
class Declared:
    """What a run releases of each record, and the guarantee of all of it.

    Attributes
    ----------
    epsilon, delta
        The guarantee.
    rounds
        Rounds that a client trains in.
    losses
        Vectors of losses that a client sends.
    loss_noise
        Standard deviation of their noise, in sensitivities.
    """

    epsilon: float
    delta: float
    rounds: int
    losses: int
    loss_noise: float

    def __post_init__(self) -> None:
        """Raise ValueError for what is no guarantee."""
        bounds = (self.epsilon > 0, 0 < self.delta < 1, self.rounds >= 1, self.losses >= 0, self.loss_noise >= 0)
        if not all(bounds) or not math.isfinite(self.epsilon) or (self.losses and not self.loss_noise):
            raise ValueError(f"{self}: is no guarantee for records")

    def releases(self, noise: float, rate: float, steps: int, rounds: int, losses: int) -> Releases:
        """Return what has left a client after so many rounds, of so many steps each, and vectors of losses."""
        return tuple(one for one in ((noise, rate, rounds * steps), (self.loss_noise, 1.0, losses)) if one[2])

    def multiplier(self, rate: float, steps: int) -> float:
        """Return the least noise of a step, in clips, with which the run keeps within epsilon; a little above it."""
        return _multiplier(self, rate, steps)

    def spent(self, rate: float, steps: int, rounds: int, losses: int) -> float:
        """Return a bound of what is spent after so many rounds and vectors of losses, at most epsilon."""
        if rounds + losses == 0:
            return 0.0
        if (rounds, losses) == (self.rounds, self.losses):
            return self.epsilon
        return min(
            self.epsilon,
            bound_of(self.releases(self.multiplier(rate, steps), rate, steps, rounds, losses), self.delta),
        )


@lru_cache(maxsize=4096)
def _multiplier(declared: Declared, rate: float, steps: int) -> float:
    target, width = declared.epsilon, min(0.01, _NEAR * declared.epsilon)

    def releases(noise: float) -> Releases:
        return declared.releases(noise, rate, steps, declared.rounds, declared.losses)

    low, high = 0.0, 0.25
    while bound_of(releases(high), declared.delta) > target:
        low, high = high, 2 * high
        if high > _MOST:
            raise ValueError(f"privacy.epsilon={target:g}: losses alone pass it; give less of it to privacy.grouping")
    # The bound's own noise is enough; the least is some tenths below it.
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (low, middle) if bound_of(releases(middle), declared.delta) <= target else (middle, high)
    low, reached = 0.0, epsilon_of(releases(high), declared.delta, width)
    for _ in range(12):
        if reached >= (1 - _NEAR) * target:
            break
        guess = max(high * reached / ((1 - _NEAR / 2) * target), (low + high) / 2)
        found = epsilon_of(releases(guess), declared.delta, width)
        if found <= target:
            high, reached = guess, found
        else:
            low = guess
    return high
