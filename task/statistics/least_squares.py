"""A linear regression's best model on one client's data, in closed form."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.threads import one_thread


def least_squares(x: NDArray[np.float64], y: NDArray[np.float64], intercept: bool) -> NDArray[np.float64]:
    """Return the coefficients of the least squared error; of several such, the shortest.

    Parameters
    ----------
    x, y
        Inputs (n, d) and targets (n,); n may be smaller than d.
    intercept
        Whether a constant is fitted too; it then comes last, and counts towards the length.

    Returns
    -------
    ndarray
        float64 (d,), or (d + 1,) with an intercept.

    Source: local estimates of the one-shot benchmark in the two-phase paper (mixed regression), section V.
    """
    columns = np.concatenate([x, np.ones((len(x), 1))], axis=1) if intercept else x
    with one_thread():
        return np.linalg.lstsq(columns, y, rcond=None)[0].astype(np.float64)


def fit_linear_model(module: Module, x: Tensor, y: Tensor) -> None:
    """Set a linear model with one output to the least-squares solution on these samples.

    Parameters
    ----------
    module
        A linear layer (1, d), with a bias or without, and nothing else that has parameters or changes the outcome.
    x, y
        Inputs (n, *input_shape) of d entries each, and targets (n,).

    Raises
    ------
    ValueError
        If the module is another kind of model.
    """
    inputs, targets = x.flatten(1).double().cpu().numpy(), y.double().cpu().numpy()
    shapes = [tuple(value.shape) for value in module.state_dict().values()]
    weight = (1, inputs.shape[1])
    remedy = "use strategy.estimate=train"
    if shapes not in ([weight], [weight, (1,)]):
        raise ValueError(f"least squares fit one linear layer of shape {weight}, not {shapes}; {remedy}.")
    solution = least_squares(inputs, targets, intercept=len(shapes) == 2)
    with torch.no_grad():
        for parameter, values in zip(module.parameters(), np.split(solution, [weight[1]]), strict=False):
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
        # The right shapes can still hide another function, such as a sigmoid at the end.
        outputs = module.eval()(x[:100]).flatten().double().cpu().numpy()
    expected = inputs[:100] @ solution[: weight[1]] + (solution[-1] if len(shapes) == 2 else 0.0)
    if not np.allclose(outputs, expected, rtol=1e-3, atol=1e-3 * (1 + np.abs(expected).max())):
        raise ValueError(f"the model is not linear in its inputs, so least squares do not fit it; {remedy}.")
