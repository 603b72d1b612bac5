"""Synthetic regressions: mixed linear models that may be very close, and lines that differ by an angle."""

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, of_groups
from florets.task.randomness import Purpose, generator
from florets.task.registry import check_ranges

# Draws of one true model before giving up. At delta=1 in 20 dimensions nearly every draw fits.
TRIES = 10_000


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
) -> Dataset:
    """Draw K linear models of d coefficients, and samples of each: x ~ N(0, I), y = <x, theta> + noise.

    A sample's group is its true model, so the partition ``by_class`` gives each cluster one model. `noise` is a
    standard deviation. `true_models` are ``sphere``: unit vectors at distances in [`delta`, 5 `delta`] (CLoVE);
    ``gaussian``: `scale` / sqrt(d) N(0, I) (mixed regression, Sec. V); or ``bernoulli``: each coordinate 0 or `scale`
    (IFCA's code).

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
    )
    drawn = generator(seed, 0, Purpose.DATA)
    if true_models == "sphere":
        models = sphere_models(num_clusters, d, delta, drawn)
    elif true_models == "bernoulli":
        models = scale * drawn.integers(2, size=(num_clusters, d)).astype(np.float64)
    else:
        models = scale / np.sqrt(d) * drawn.standard_normal((num_clusters, d))
    num_train = min(max(round(train_share * samples_per_cluster), 1), samples_per_cluster - 1)
    x = np.empty((num_clusters, samples_per_cluster, d), dtype=np.float32)
    y = np.empty((num_clusters, samples_per_cluster))
    for k, theta in enumerate(models):
        rng = generator(seed, 0, Purpose.DATA, 1 + k)
        inputs = rng.standard_normal((samples_per_cluster, d))
        x[k] = inputs
        y[k] = inputs @ theta + noise * rng.standard_normal(samples_per_cluster)
    return of_groups(x, y.astype(np.float32), num_train, num_outputs=1, true_models=models.astype(np.float32))


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
                f"no {num_models} models at these distances were found; lower task.data_options.delta or raise "
                "task.data_options.d."
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

    Three lines have the angles -gap, 0 and gap. A sample's group is its line, so the partition ``by_class`` gives
    each cluster one line. `noise` is the standard deviation of y around its line.

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
    return of_groups(x[:, :, None], y, train_per_line, num_outputs=1)
