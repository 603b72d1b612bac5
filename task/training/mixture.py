"""Mixture of K models: which of them is responsible for which sample, and what they predict together."""

from collections.abc import Mapping, Sequence
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.task.training.losses import CHUNK, Evaluated, count, evaluated, per_sample_losses, targets_of

_MOST_STEPS = 1000
_RESTS = 1e-6

FloatArray = NDArray[np.float64]
State = Mapping[str, Tensor]


def responsibilities(
    losses: FloatArray, shares: FloatArray, rarity: FloatArray | None = None
) -> tuple[FloatArray, float]:
    """Return how responsible each model is for each sample (n, K), and the mixture's mean loss on them.

    From `losses` (n, K), negative log-likelihoods, and `shares` pi (K,): rows are proportional to pi_k exp(rarity_k -
    loss_k), and pi where no model with a share explains the sample at all. For `rarity` see `class_rarity`; None: 0.
    The loss is the mean of -log sum_k pi_k exp(-loss_k).

    Source: Marfoq et al. 2021 (FedEM), E-step; Guo et al. 2024 (FedRC), the same with rarities.
    """
    with np.errstate(divide="ignore"):
        scores = np.log(shares) - np.where(np.isnan(losses), np.inf, losses)
    weights, loss = _posterior(scores, shares)
    return (weights if rarity is None else _posterior(scores + rarity, shares)[0]), loss


def _posterior(scores: FloatArray, shares: FloatArray) -> tuple[FloatArray, float]:
    """Return exp(scores) with rows of sum 1, `shares` where a row has nothing finite, and minus the mean log sum."""
    highest = scores.max(axis=1, keepdims=True)
    known = np.isfinite(highest)
    weights = np.where(known, np.exp(scores - np.where(known, highest, 0.0)), shares)
    totals = weights.sum(axis=1, keepdims=True)
    logs = np.where(known, highest + np.log(totals), -np.inf)
    return weights / totals, float(-logs.mean())


def class_rarity(labels: NDArray[np.int64], class_shares: FloatArray) -> FloatArray:
    """Return how rare each sample's class is in what each of K models is responsible for, (n, K): -log P_k(y)."""
    return -np.log(class_shares[:, labels].T)


def class_sums(weights: FloatArray, labels: NDArray[np.int64], num_classes: int) -> FloatArray:
    """Return the responsibilities (n, K) summed over the samples of each class, (K, C)."""
    return np.stack([np.bincount(labels, weights=column, minlength=num_classes) for column in weights.T])


def sample_losses(module: Module, states: Sequence[State], x: Tensor, y: Tensor, loss: str) -> FloatArray:
    """Return the loss of each sample in each of K models in eval mode, (n, K); `module` is scratch."""
    count(losses=len(x) * len(states))
    columns = []
    for state in states:
        module.load_state_dict(state)
        module.eval()
        with torch.inference_mode():
            parts = []
            for start in range(0, len(x), CHUNK):
                x_part, y_part = x[start : start + CHUNK], y[start : start + CHUNK]
                parts.append(per_sample_losses(module(x_part), targets_of(x_part, y_part, loss), loss))
        columns.append(torch.cat(parts).double().cpu().numpy())
    return np.stack(columns, axis=1)


def fit_shares(losses: FloatArray, rarity: FloatArray | None = None) -> FloatArray:
    """Return the shares (K,) under which a mixture explains samples best, from any start."""
    shares = np.full(losses.shape[1], 1.0 / losses.shape[1])
    for _ in range(_MOST_STEPS):
        before, shares = shares, responsibilities(losses, shares, rarity)[0].mean(axis=0)
        if np.abs(shares - before).max() < _RESTS:
            break
    return shares


class Mixture(Module):
    """K models as one: outputs are logarithms of probabilities mixed by `shares` (K,), or mean values."""

    def __init__(self, module: Module, states: Sequence[State], shares: FloatArray, loss: str) -> None:
        super().__init__()
        self.scratch, self._states, self._has_classes = module, states, loss == "cross_entropy"
        self._shares = shares.tolist()

    def forward(self, x: Tensor) -> Tensor:
        """Return log sum_k pi_k softmax_k(x), (n, C), or sum_k pi_k f_k(x); a model without a share has no part."""
        parts = []
        for state, share in zip(self._states, self._shares, strict=True):
            if share > 0:
                self.scratch.load_state_dict(state)
                outputs = self.scratch(x)
                parts.append(outputs.log_softmax(dim=1) + log(share) if self._has_classes else share * outputs)
        stacked = torch.stack(parts)
        return stacked.logsumexp(dim=0) if self._has_classes else stacked.sum(dim=0)


def evaluated_mixture(
    module: Module, states: Sequence[State], shares: FloatArray, x: Tensor, y: Tensor, loss: str
) -> Evaluated:
    """Return the test of a mixture of K models on a data set."""
    if len(states) == 1:
        module.load_state_dict(states[0])
        return evaluated(module, x, y, loss)
    count(losses=len(x) * (len(states) - 1))
    return evaluated(Mixture(module, states, shares, loss), x, y, loss)
