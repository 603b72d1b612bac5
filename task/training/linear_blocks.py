"""Full-batch steps of several clients' linear models at once, in NumPy; see `florets.task.training.linear`.

Of models this small stacks in torch cost as much as NumPy does client by client: autograd's calls are as many for a
stack of 64 as for one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.training.linear import (
    Float32,
    LinearModels,
    LinearNames,
    flat,
    may_diverge,
    output_slopes,
    sample_losses,
)
from florets.task.training.settings import Training
from florets.task.training.vectorised import Share, Trained


def linear_updates(names: LinearNames, shares: Sequence[Share], loss: str, settings: Training) -> list[Trained]:
    """Train each client's model on its own data; see `florets.task.training.vectorised.stacked_update`.

    Parameters
    ----------
    names
        Of the models' entries.
    shares, loss, settings
        Such that `florets.task.training.linear.takes_full_steps` holds for each of them.
    """
    alike: dict[int, list[int]] = {}
    for row, share in enumerate(shares):
        alike.setdefault(share.x.shape[0], []).append(row)
    found: dict[int, Trained] = {}
    for rows in alike.values():
        found.update(zip(rows, _of_like_sizes(names, [shares[row] for row in rows], loss, settings), strict=True))
    return [found[row] for row in range(len(shares))]


@may_diverge
def _of_like_sizes(names: LinearNames, shares: Sequence[Share], loss: str, settings: Training) -> list[Trained]:
    # All in one stack: inputs (m, n, d) and targets (m n,) of m clients with n samples each.
    data = [flat(share.x, share.y) for share in shares]
    x, y = np.stack([inputs for inputs, _ in data]), np.concatenate([targets for _, targets in data])
    models = LinearModels.of(
        [{name: value.numpy() for name, value in share.state.items()} for share in shares], names
    )
    weight, bias, rate = models.weight, models.bias, np.float32(settings.learning_rate)
    outputs = np.empty((0, 1), dtype=np.float32)
    for _ in range(settings.num_steps(1)):
        product = x @ weight.swapaxes(1, 2)
        if bias is not None:
            product += bias[:, None]
        outputs = product.reshape(len(y), -1)
        slope = output_slopes(outputs, y, loss, x.shape[1]).reshape(product.shape)
        weight -= rate * (slope.swapaxes(1, 2) @ x)
        if bias is not None:
            bias -= rate * slope.sum(axis=1)
    means = sample_losses(outputs[:, None], y, loss).reshape(x.shape[:2]).mean(axis=1, dtype=np.float64)
    passes = settings.num_steps(1) * x.shape[1]
    return [Trained(_arrays(names, weight, bias, row), float(mean), passes) for row, mean in enumerate(means)]


def _arrays(names: LinearNames, weight: Float32, bias: Float32 | None, row: int) -> dict[str, NDArray[Any]]:
    return {names.weight: weight[row]} | ({} if bias is None or names.bias is None else {names.bias: bias[row]})
