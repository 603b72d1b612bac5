"""`ClassShares`: classes in what each of K models is responsible for, with which a new client finds its mixture."""

from dataclasses import dataclass

from florets.strategies.core import FloatArray


@dataclass(frozen=True)
class ClassShares:
    """P_k(y).

    Attributes
    ----------
    shares
        (K, C), above 0; each row sums to 1.
    """

    shares: FloatArray
