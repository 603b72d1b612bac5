"""Feature maps of mixed regression: what a linear model sees of an input x."""

from math import factorial, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Features = Literal["identity", "polynomial", "random"]
Float64 = NDArray[np.float64]


def feature_map(kind: Features, x: Float64, degree: int, num_features: int, rng: np.random.Generator) -> Float64:
    """Return the features of inputs.

    Parameters
    ----------
    kind
        ``identity``: x itself. ``polynomial``: of each coordinate the Hermite polynomials of degree 1 to `degree`.
        ``random``: random Fourier features sqrt(2) cos(<w, x> + b), w ~ N(0, I), b uniform on [0, 2 pi).
    x
        Inputs (n, d).
    degree, num_features
        Of the polynomials, and the number of random features.
    rng
        Draws the random features; the same state gives the same map.

    Returns
    -------
    ndarray
        (n, d), (n, d * degree) or (n, num_features)

    Notes
    -----
    The analysis of moment descent wants features whose covariance is near to I. Of x ~ N(0, I) the polynomials
    He_p / sqrt(p!) have it exactly, being orthonormal under N(0, 1); plain powers of x span the same models, but
    their covariance has an eigenvalue that grows with d. Random features have mean square 1, and are the less
    correlated the larger d is.

    Source: mixed regression, Sec. III, Eq. (1), names polynomials and random features; which, is our choice.
    """
    if kind == "polynomial":
        parts = [np.ones_like(x), x]
        for p in range(1, degree):
            parts.append(x * parts[p] - p * parts[p - 1])
        return np.concatenate([parts[p] / sqrt(factorial(p)) for p in range(1, degree + 1)], axis=1)
    if kind == "random":
        directions = rng.standard_normal((x.shape[1], num_features))
        phases = rng.uniform(0, 2 * np.pi, num_features)
        return np.asarray(sqrt(2) * np.cos(x @ directions + phases))
    return x


def num_features_of(kind: Features, d: int, degree: int, num_features: int) -> int:
    """Return the length R of a feature vector."""
    return {"identity": d, "polynomial": d * degree, "random": num_features}[kind]


def covariance_root(d: int, spread: float, rng: np.random.Generator) -> Float64 | None:
    """Return a root (d, d) of a random covariance matrix with condition number `spread`; None for the identity.

    Its eigenvalues lie evenly in logarithm from 1/sqrt(spread) to sqrt(spread), its eigenvectors are uniform. With
    z ~ N(0, I), the rows of z @ root have this covariance.

    Source: mixed regression, Sec. III: alpha I <= covariance <= beta I, equal within a cluster.
    """
    if spread == 1:
        return None
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    eigenvalues = np.geomspace(spread**-0.5, spread**0.5, d)
    return np.asarray(np.sqrt(eigenvalues)[:, None] * basis.T)
