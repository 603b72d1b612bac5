"""FedProx's local problem solved exactly, where it is a ridge regression."""

import numpy as np
import torch
from torch import Tensor, nn

from florets.task.training.linear_steps import CURVATURES, linear_names


def exact_proximal(
    module: nn.Module, x: Tensor, y: Tensor, loss: str, proximal_mu: float, share: float = 1.0
) -> float | None:
    """Move a linear model to argmin share * L(theta) + mu/2 ||theta - theta_start||^2.

    Parameters
    ----------
    module
        Holds the start parameters, and the minimum afterwards.
    x, y, loss
        See `florets.task.training.local_update`.
    proximal_mu
        mu, 1 / eta in the paper's terms, above 0.
    share
        Factor of the loss, in [0, 1].

    Returns
    -------
    float or None
        Mean loss at the start; None, and nothing is done, where the model is not plainly linear or the loss is no
        squared error of one output.

    Raises
    ------
    ValueError
        If there is no sample, or `proximal_mu` is not positive.

    Source: mixed regression, Phase 2, l. 8 (FedProx-based).
    """
    names = linear_names(module, loss)
    if names is None or loss not in CURVATURES:
        return None
    if len(x) == 0 or proximal_mu <= 0:
        raise ValueError(f"proximal_mu={proximal_mu} on {len(x)} samples: both must be above 0.")
    inputs = x.detach().flatten(1).cpu().numpy().astype(np.float64)
    if names.bias is not None:
        inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
    # In this order, and one output: the weights and the bias are one vector of coefficients.
    parameters = list(module.parameters())
    start = np.concatenate([p.detach().cpu().numpy().ravel() for p in parameters]).astype(np.float64)
    error = y.detach().cpu().numpy().astype(np.float64) - inputs @ start
    factor = share * CURVATURES[loss] / len(inputs)
    if len(inputs) < len(start):
        # (mu I + f X^T X)^-1 X^T = X^T (mu I + f X X^T)^-1: the smaller system of the two.
        kernel = proximal_mu * np.eye(len(inputs)) + factor * (inputs @ inputs.T)
        moved = start + factor * (inputs.T @ np.linalg.solve(kernel, error))
    else:
        kernel = proximal_mu * np.eye(len(start)) + factor * (inputs.T @ inputs)
        moved = start + factor * np.linalg.solve(kernel, inputs.T @ error)
    with torch.no_grad():
        place = 0
        for parameter in parameters:
            values = moved[place : place + parameter.numel()]
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
            place += parameter.numel()
    return float(np.mean(error**2) * CURVATURES[loss] / 2)
