"""The rule by which clients hold out samples and the server knows how many are left."""

ONE_IN = 5
"""One training sample in so many is held out, at least one; of a single sample none."""


def left_after(count: int) -> int:
    """Return how many of a client's training samples are trained on where a part is held out."""
    return count if count < 2 else count - max(1, count // ONE_IN)
