"""Lines through the origin: a regression of one variable whose clusters differ by an angle."""

from pathlib import Path

import numpy as np

from florets.task.data.dataset import Dataset
from florets.task.randomness import Purpose, generator
from florets.task.registry import register_data


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
    data_dir
        Not used.
    seed
        Draws the samples; each line has a generator of its own.
    num_clusters
        K: three lines have the angles -gap, 0 and gap. A sample's group is its line, so the partition ``by_class``
        gives each cluster one line.
    gap_degrees
        Angle between neighbouring lines, in degrees.
    noise
        Standard deviation of y around its line: squared, the least mean squared error that a model can have.
    train_per_line, test_per_line
        Samples of each line.

    Raises
    ------
    ValueError
        If an option is out of its range.

    Source: CFL-GP, Sec. 5.1 and App. F.4; the numbers of samples are those of its published code.
    Deviation: there, train and test samples, and the x of all lines, come from equal seeds; here all are independent.
    """
    outermost = gap_degrees * (num_clusters - 1) / 2
    for name, value, holds, rule in (
        ("gap_degrees", gap_degrees, gap_degrees > 0 and outermost < 90, "above 0, with all lines within 90 degrees"),
        ("noise", noise, noise >= 0, "at least 0"),
        ("train_per_line", train_per_line, train_per_line >= 1, "at least 1"),
        ("test_per_line", test_per_line, test_per_line >= 1, "at least 1"),
    ):
        if not holds:
            raise ValueError(f"task.data_options.{name}={value} must be {rule}.")
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
