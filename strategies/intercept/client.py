"""The clients' estimate of their own offsets of a model's outputs, for random intercepts."""

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.training import sample_weights
from florets.strategies.intercept.messages import Intercept, offset_basis
from florets.task.training.losses import evaluated
from florets.task.training.modules import load
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.evaluation import MIN_RECORDS

FloatArray = NDArray[np.float64]
SPREAD = 2.5
"""Standard deviation of the weak prior of an offset on the logit scale."""
_MOST_STEPS, _MOST_HALVINGS, _RESTS = 100, 30, 1e-10
_TRIED, _TOLERANCE = 8, 1e-3


def intercept(client: Client) -> RecordDict:
    """Estimate the offsets on the training data, the model held fixed; return them and their variances.

    Of a model that diverged, of fewer than `MIN_RECORDS` records, and where the node's owner keeps statistics back,
    they are 0 with the largest variance: for the server that is no estimate, and the client has the common intercept.
    """
    if client.loss == "reconstruction":
        raise ValueError("a reconstruction has no intercept; use a task with classes or values")
    state, data, module = client.on_device(client.states()[0]), client.data, client.module
    (layer,) = client.names(kinds.HEAD)
    load(module, {**state, f"{layer}.bias": state[f"{layer}.bias"] + 1})
    tried = evaluated(module, data.x_train[:_TRIED], data.y_train[:_TRIED], client.loss).outputs
    load(module, state)
    outputs = evaluated(module, data.x_train, data.y_train, client.loss).outputs
    assert outputs is not None
    assert tried is not None
    num_offsets = offset_basis(outputs.shape[1]).shape[1]
    offsets, variances = np.zeros(num_offsets), np.full(num_offsets, kinds.DIVERGED)
    is_estimated = client.shares_statistics and client.num_examples >= MIN_RECORDS
    if is_estimated and np.isfinite(outputs).all() and np.isfinite(tried).all():
        plain = outputs[:_TRIED]
        if np.abs(tried - plain - 1).max() > _TOLERANCE * (1 + np.abs(plain).max()):
            raise ValueError(
                f"the bias of layer {layer!r} does not shift the model's outputs: it is not the last one"
            )
        targets = data.y_train.cpu()
        if client.loss == "cross_entropy":
            # A model that was trained with weights by class has other intercepts than the classes' shares.
            weights = sample_weights(client)
            worth = None if weights is None else weights.cpu().numpy().astype(np.float64)
            offsets, variances = class_offsets(outputs.astype(np.float64), targets.numpy(), worth)
        else:
            residuals = targets.to(torch.float64).numpy() - outputs[:, 0]
            offsets, variances = value_offset(residuals)
    return pack(
        Intercept,
        offsets=np.clip(offsets, -kinds.DIVERGED, kinds.DIVERGED),
        variances=np.minimum(variances, kinds.DIVERGED),
        num_examples=client.num_examples,
    )


def value_offset(residuals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of residuals (n,) and their variance with n - 1, (1,) each; the variance of one is 0."""
    spread = residuals.var(ddof=1) if len(residuals) > 1 else 0.0
    return np.array([residuals.mean()]), np.array([spread])


def class_offsets(
    logits: FloatArray, labels: NDArray[np.int64], weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the offsets of logits (n, C) that explain the labels (n,) best, and the variances of these estimates.

    They are coefficients (W,) of `wire.intercept.offset_basis`: of two classes the shift of the difference between
    class 1 and class 0, of more C - 1 contrasts. A shift of all classes together changes no probability: offsets of
    each class would have no maximum, and no variance.

    Parameters
    ----------
    weights
        Of the records (n,), above 0, in whatever unit, where the model was trained with weights; None: all alike.

    Notes
    -----
    Newton's steps maximise the log-likelihood with a normal prior of standard deviation `SPREAD`, which keeps the
    offsets finite where a client has one class alone. The prior's contribution is then removed: of a normal posterior
    with mean b and information H, and the prior's precision l, the likelihood has the information L = H - l I, its
    maximum is at (I + l L^-1) b, and the variances are the diagonal of L^-1. With many records of all classes that is
    the plain maximum-likelihood estimate with the inverse information. Weighted records count for
    (sum w)^2 / sum w^2 of them (Kish 1965): as all n of them, a rare class's weighted offset would have far too small
    a variance.

    Source: Gelman et al. 2008 (Annals of Applied Statistics 2) for the size of the weak prior; Breslow and Clayton
    1993 (JASA 88) for the normal approximation at the penalised maximum.
    """
    width = logits.shape[1]
    basis = offset_basis(width)
    precision = 1 / SPREAD**2
    worth = np.ones(len(labels)) if weights is None else weights * (weights.sum() / np.square(weights).sum())
    counts = np.bincount(labels, weights=worth, minlength=width)

    def log_posterior(offsets: FloatArray) -> tuple[float, FloatArray]:
        shifted = logits + basis @ offsets
        highest = shifted.max(axis=1, keepdims=True)
        odds = np.exp(shifted - highest)
        totals = odds.sum(axis=1, keepdims=True)
        each = shifted[np.arange(len(labels)), labels] - (np.log(totals) + highest)[:, 0]
        return float(worth @ each - precision * offsets @ offsets / 2), odds / totals

    offsets = np.zeros(basis.shape[1])
    value, shares = log_posterior(offsets)
    for _ in range(_MOST_STEPS):
        slope = basis.T @ (counts - worth @ shares) - precision * offsets
        step = np.linalg.solve(_information(shares, worth, basis) + precision * np.eye(len(offsets)), slope)
        for _ in range(_MOST_HALVINGS):
            following, of_it = log_posterior(offsets + step)
            if following >= value:
                break
            step = step / 2
        else:
            break
        offsets, value, shares = offsets + step, following, of_it
        if np.abs(step).max() < _RESTS:
            break
    # A direction without information has an infinite variance; rounding must not make it negative.
    values, axes = np.linalg.eigh(_information(shares, worth, basis))
    each = 1 / np.maximum(values, np.finfo(np.float32).tiny)
    return offsets + axes @ (precision * each * (axes.T @ offsets)), np.square(axes) @ each


def _information(shares: FloatArray, worth: FloatArray, basis: FloatArray) -> FloatArray:
    """Return the negative second derivative of the log-likelihood (W, W)."""
    of_logits = np.diag(worth @ shares) - shares.T @ (worth[:, np.newaxis] * shares)
    found: FloatArray = basis.T @ of_logits @ basis
    return found
