"""Synthetic regressions: mixed linear models that may be very close, and lines that differ by an angle."""

from math import factorial, sqrt
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset
from florets.task.randomness import Purpose, generator
from florets.task.registry import check_ranges, register_data

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


# Draws of one true model before giving up. At delta=1 in 20 dimensions nearly every draw fits.
TRIES = 10_000
# Of Hermite polynomials; beyond, a few far samples make up all of a feature's variance.
MOST_DEGREES = 8


@register_data("linear", files=False)
def linear(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    d: int = 20,
    delta: float = 1.0,
    noise: float = 1e-4,
    samples_per_cluster: int = 5000,
    train_share: float = 0.9,
    true_models: Literal["sphere", "gaussian", "bernoulli"] = "sphere",
    scale: float = 2.0,
    features: Features = "identity",
    degree: int = 2,
    num_features: int = 100,
    covariance_spread: float = 1.0,
) -> Dataset:
    """Draw K linear models of R features, and samples of each: x ~ N(0, S), y = <phi(x), theta> + noise.

    Parameters
    ----------
    num_clusters
        K. A sample's group is its true model, so the partition ``by_class`` gives each cluster one model.
    d
        Dimension of x, at least 2.
    delta
        Distances between true models on the sphere lie in [delta, 5 delta].
    noise
        Standard deviation of the noise on y.
    samples_per_cluster
        Samples of each model.
    train_share
        The first so many of them are the train set, the others the test set.
    true_models
        ``sphere``: unit vectors (CLoVE). ``gaussian``: ``scale`` / sqrt(R) N(0, I) (mixed regression, Sec. V).
        ``bernoulli``: each coordinate 0 or ``scale``, by a fair coin (the synthetic data of IFCA's released code).
    scale
        About the norm of a ``gaussian`` true model; the coordinates of a ``bernoulli`` one.
    features, degree, num_features
        The map phi, see `florets.task.data.regression.feature_map`; the data set holds phi(x), of R entries.
    covariance_spread
        Condition number of the covariance S of x, which each cluster draws for itself; 1: S = I for all.

    Notes
    -----
    Deviation: CLoVE's published code seeds models and samples alike, so that its first sample is its first model (not
    normalised); here they are independent.

    Source: CLoVE, App. D.1.1; mixed regression, Sec. III and V; IFCA, synthetic data.
    """
    check_ranges(
        "data",
        ("d", d, d >= 2, "at least 2"),
        ("delta", delta, 0 < delta <= 2, "above 0 and at most 2, the diameter of the unit sphere"),
        ("noise", noise, noise >= 0, "at least 0"),
        ("samples_per_cluster", samples_per_cluster, samples_per_cluster >= 2, "at least 2"),
        ("train_share", train_share, 0 < train_share < 1, "between 0 and 1"),
        ("scale", scale, scale > 0, "above 0"),
        ("degree", degree, 1 <= degree <= MOST_DEGREES, f"from 1 to {MOST_DEGREES}"),
        ("num_features", num_features, num_features >= 2, "at least 2"),
        ("covariance_spread", covariance_spread, covariance_spread >= 1, "at least 1"),
    )
    width = num_features_of(features, d, degree, num_features)
    drawn = generator(seed, 0, Purpose.DATA)
    if true_models == "sphere":
        models = sphere_models(num_clusters, width, delta, drawn)
    elif true_models == "bernoulli":
        models = scale * drawn.integers(2, size=(num_clusters, width)).astype(np.float64)
    else:
        models = scale / np.sqrt(width) * drawn.standard_normal((num_clusters, width))
    num_train = min(max(round(train_share * samples_per_cluster), 1), samples_per_cluster - 1)
    x = np.empty((num_clusters, samples_per_cluster, width), dtype=np.float32)
    y = np.empty((num_clusters, samples_per_cluster))
    for k, theta in enumerate(models):
        rng = generator(seed, 0, Purpose.DATA, 1 + k)
        inputs = rng.standard_normal((samples_per_cluster, d))
        root = covariance_root(d, covariance_spread, generator(seed, 0, Purpose.FEATURES, 1 + k))
        if root is not None:
            inputs = inputs @ root
        # The map is one for all clusters: its draws are those of client 0.
        phi = feature_map(features, inputs, degree, num_features, generator(seed, 0, Purpose.FEATURES))
        x[k] = phi
        y[k] = phi @ theta + noise * rng.standard_normal(samples_per_cluster)
    group = np.broadcast_to(np.arange(num_clusters)[:, None], y.shape)
    return Dataset(
        x_train=x[:, :num_train].reshape(-1, width),
        y_train=y[:, :num_train].reshape(-1).astype(np.float32),
        x_test=x[:, num_train:].reshape(-1, width),
        y_test=y[:, num_train:].reshape(-1).astype(np.float32),
        num_outputs=1,
        group_train=group[:, :num_train].reshape(-1),
        group_test=group[:, num_train:].reshape(-1),
        true_models=models.astype(np.float32),
    )


def sphere_models(num_models: int, d: int, delta: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return unit vectors (K, d) whose pairwise distances all lie in [delta, 5 delta], by a random walk.

    Each new vector lies at distance delta from a random earlier one, in a random direction along the sphere, and is
    kept if it fits to all others.

    Deviation: the published code adds a random vector of length delta and normalises, which all but always lands a
    little too near when delta is small, so that it draws thousands of times; the distances come out alike.
    """
    first = rng.standard_normal(d)
    models = [first / np.linalg.norm(first)]
    angle = 2 * np.arcsin(delta / 2)
    tries = 0
    while len(models) < num_models:
        if tries == TRIES:
            raise ValueError(
                f"no {num_models} models on the unit sphere of R^{d} with distances in [{delta}, {5 * delta}] were "
                f"found: lower task.data_options.delta, raise task.data_options.d or lower task.num_clusters."
            )
        tries += 1
        start = models[rng.integers(len(models))]
        tangent = rng.standard_normal(d)
        tangent -= (tangent @ start) * start
        candidate = np.cos(angle) * start + np.sin(angle) * tangent / np.linalg.norm(tangent)
        candidate /= np.linalg.norm(candidate)
        distances = np.linalg.norm(np.array(models) - candidate, axis=1)
        # The slack lets the distance to `start`, delta but for rounding, pass.
        if distances.min() >= delta * (1 - 1e-9) and distances.max() <= 5 * delta:
            models.append(candidate)
            tries = 0
    return np.array(models)


@register_data("lines", files=False)
def lines(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    gap_degrees: float = 20.0,
    noise: float = 0.2,
    train_per_line: int = 262_144,
    test_per_line: int = 131_072,
) -> Dataset:
    """Draw samples of K lines: x ~ U(0, cos phi), y = x tan phi + noise, with phi in steps of `gap_degrees` around 0.

    Parameters
    ----------
    num_clusters
        K: three lines have the angles -gap, 0 and gap. A sample's group is its line, so the partition ``by_class``
        gives each cluster one line.
    gap_degrees
        Angle between neighbouring lines, in degrees.
    noise
        Standard deviation of y around its line: squared, the least mean squared error that a model can have.
    train_per_line, test_per_line
        Samples of each line.

    Source: CFL-GP, Sec. 5.1 and App. F.4; the numbers of samples are those of its published code.
    Deviation: there, train and test samples, and the x of all lines, come from equal seeds; here all are independent.
    """
    outermost = gap_degrees * (num_clusters - 1) / 2
    check_ranges(
        "data",
        ("gap_degrees", gap_degrees, gap_degrees > 0 and outermost < 90, "above 0, with all lines within 90 degrees"),
        ("noise", noise, noise >= 0, "at least 0"),
        ("train_per_line", train_per_line, train_per_line >= 1, "at least 1"),
        ("test_per_line", test_per_line, test_per_line >= 1, "at least 1"),
    )
    number = train_per_line + test_per_line
    x, y = np.empty((num_clusters, number), dtype=np.float32), np.empty((num_clusters, number), dtype=np.float32)
    for line in range(num_clusters):
        rng = generator(seed, 0, Purpose.DATA, 1 + line)
        angle = np.deg2rad(gap_degrees * line - outermost)
        drawn = rng.uniform(0.0, np.cos(angle), number)
        x[line], y[line] = drawn, drawn * np.tan(angle) + noise * rng.standard_normal(number)
    group = np.broadcast_to(np.arange(num_clusters)[:, None], y.shape)
    train, test = slice(None, train_per_line), slice(train_per_line, None)
    return Dataset(
        x_train=x[:, train].reshape(-1, 1),
        y_train=y[:, train].reshape(-1),
        x_test=x[:, test].reshape(-1, 1),
        y_test=y[:, test].reshape(-1),
        num_outputs=1,
        group_train=group[:, train].reshape(-1),
        group_test=group[:, test].reshape(-1),
    )
