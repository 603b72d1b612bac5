"""Mixed linear regression: synthetic data whose true models are known and may be very close."""

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset
from florets.task.data.feature_maps import Features, covariance_root, feature_map, num_features_of
from florets.task.randomness import Purpose, generator
from florets.task.registry import register_data

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
    data_dir
        Not used.
    seed
        Draws models and samples; each cluster has a generator of its own.
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
        The map phi, see `florets.task.data.feature_maps.feature_map`; the data set holds phi(x), of R entries.
    covariance_spread
        Condition number of the covariance S of x, which each cluster draws for itself; 1: S = I for all.

    Raises
    ------
    ValueError
        If an option is out of its range, or so many models of such distances are not found.

    Notes
    -----
    Deviation: CLoVE's published code seeds models and samples alike, so that its first sample is its first model (not
    normalised); here they are independent.

    Source: CLoVE, App. D.1.1; mixed regression, Sec. III and V; IFCA, synthetic data.
    """
    for name, value, holds, rule in (
        ("d", d, d >= 2, "at least 2"),
        ("delta", delta, 0 < delta <= 2, "above 0 and at most 2, the diameter of the unit sphere"),
        ("noise", noise, noise >= 0, "at least 0"),
        ("samples_per_cluster", samples_per_cluster, samples_per_cluster >= 2, "at least 2"),
        ("train_share", train_share, 0 < train_share < 1, "between 0 and 1"),
        ("scale", scale, scale > 0, "above 0"),
        ("degree", degree, 1 <= degree <= MOST_DEGREES, f"from 1 to {MOST_DEGREES}"),
        ("num_features", num_features, num_features >= 2, "at least 2"),
        ("covariance_spread", covariance_spread, covariance_spread >= 1, "at least 1"),
    ):
        if not holds:
            raise ValueError(f"task.data_options.{name}={value} must be {rule}.")
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

    Raises
    ------
    ValueError
        If a vector is not found.
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
