"""Clipping and Gaussian noise: what keeps a sum, or what one client sends, from saying much about one client."""

import secrets

import numpy as np
import numpy.typing as npt

from florets.task.wire import kinds

Vector = npt.NDArray[np.float64]

ANSWERED = frozenset({kinds.HELLO, kinds.TRAIN, kinds.TRAIN_SELECT, kinds.LOSSES}) | kinds.SECURE
"""Messages that a client of a run with local noise answers; in a simulation it is also tested."""
LOSS_CLIP = 5.0
"""Bound at which losses for grouping are clipped."""
_SHIFT = 8.0
"""Standard deviations by which noised losses are raised: losses that are sent are not negative."""


def gaussian(shape: int | tuple[int, ...], deviation: float) -> Vector:
    """Return fresh Gaussian noise, made of the operating system's random bytes.

    Who knows the run's seed must not know it, nor compute the rest of it from entries that are noise alone, as from
    those of NumPy's generators.

    Source: Box and Muller 1958.
    """
    if not deviation >= 0:
        # A server may ask for a bound below 0; an answer without noise must not leave.
        raise ValueError(f"noise of deviation {deviation}: must be at least 0")
    if deviation == 0:
        return np.zeros(shape)
    count = int(np.prod(shape))
    pairs = (count + 1) // 2
    words = np.frombuffer(secrets.token_bytes(16 * pairs), np.uint64).reshape(2, pairs)
    uniform = ((words >> 11) + 0.5) * 2.0**-53
    radius, angle = deviation * np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
    drawn: Vector = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)
    return drawn


def within(vector: npt.NDArray[np.floating], bound: float) -> Vector:
    """Return a vector shortened to a Euclidean norm of at most `bound`; 0 where it is not finite."""
    values = np.asarray(vector, dtype=np.float64)
    norm = float(np.linalg.norm(values))
    if not np.isfinite(norm):
        return np.zeros(values.shape)
    return values if norm <= bound else values * (bound / norm)


def centred(losses: npt.NDArray[np.floating]) -> Vector:
    """Return losses (..., K) clipped to [0, `LOSS_CLIP`], less half of it: of a norm of at most `loss_norm`."""
    # A NaN, of which no comparison holds, is the worst loss.
    kept = np.where(np.asarray(losses) < LOSS_CLIP, np.maximum(losses, 0.0), LOSS_CLIP)
    return np.asarray(kept - LOSS_CLIP / 2, dtype=np.float64)


def loss_norm(count: int) -> float:
    """Return the largest norm of a `centred` vector of so many losses."""
    return LOSS_CLIP / 2 * float(np.sqrt(count))


def noised_losses(losses: Vector, multiplier: float, count: int = 1) -> Vector:
    """Return a client's losses (K,) with noise that hides one part in `count` of them, raised by `raised_by`."""
    deviation = multiplier * loss_norm(len(losses)) / count
    noised = centred(losses) + LOSS_CLIP / 2 + gaussian(len(losses), deviation)
    return np.maximum(noised + raised_by(len(losses), multiplier), 0.0)


def raised_by(count: int, multiplier: float) -> float:
    """Return by how much noised losses are raised, which says nothing of them."""
    return _SHIFT * multiplier * loss_norm(count)
