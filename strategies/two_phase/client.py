"""The clients of two-phase: moments, and an anchor's step (phase 1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from florets.client_app.client import Client
from florets.client_app.training import reported
from florets.strategies.two_phase.messages import LocalFactors, Term
from florets.task.layers import untrained_entries
from florets.task.training.linear import CURVATURES, linear_names
from florets.task.training.losses import count, mean_loss, per_sample_losses, targets_of
from florets.task.wire import Layout, kinds
from florets.task.wire.codec import pack
from florets.task.wire.records import view_array
from florets.task.wire.replies import Update

Float32 = NDArray[np.float32]

LARGEST_BLOCK = 2**22
"""Moments computed at a time, in values: 16 MB."""


def sample_moments(module: nn.Module, estimates: Float32, x: Tensor, y: Tensor, loss: str) -> Float32:
    """Return the negative gradient of the loss of each sample at each model, float32 (A, n, R); buffers have zeros.

    `estimates` (A, R) are models, flat in the order of the state dict of `module`.

    Source: mixed regression, Phase 1 (epsilon(x, y, theta)) and Remark 3.
    """
    size = sum(value.numel() for value in module.state_dict().values())
    if estimates.shape[1] != size:
        raise ValueError(
            f"the estimates have {estimates.shape[1]} values each, but this client's model has {size}; "
            "server and clients must build the same model."
        )
    count(gradients=len(estimates) * len(x))
    if names := linear_names(module, loss):
        shape = module.state_dict()[names.weight].shape
        return _linear_moments((shape[0], shape[1]), names.bias is not None, estimates, x, y, loss)
    moments = np.zeros((len(estimates), len(x), size), dtype=np.float32)
    step = max(1, LARGEST_BLOCK // (len(x) * size))
    for start in range(0, len(estimates), step):
        block = slice(start, start + step)
        _torch_moments(module, estimates[block], x, y, loss, moments[block])
    return moments


def _linear_moments(
    shape: tuple[int, int], has_bias: bool, estimates: Float32, x: Tensor, y: Tensor, loss: str
) -> Float32:
    """Return the closed form: outer products of the outputs' slopes and the inputs."""
    inputs, targets = x.detach().flatten(1).cpu().numpy(), y.detach().cpu().numpy()
    num_weights = shape[0] * shape[1]
    weights = estimates[:, :num_weights].reshape(len(estimates), *shape)
    outputs = inputs @ weights.transpose(0, 2, 1)
    if has_bias:
        outputs += estimates[:, np.newaxis, num_weights:]
    slopes = _negative_slopes(outputs, targets, loss)
    products = slopes[..., np.newaxis] * inputs[:, np.newaxis]
    moments: Float32 = products.reshape(len(estimates), len(inputs), num_weights)
    return np.concatenate([moments, slopes], axis=2) if has_bias else moments


def _negative_slopes(outputs: Float32, targets: NDArray[Any], loss: str) -> Float32:
    """Return minus the derivative of each sample's loss by the outputs (A, n, C)."""
    slopes: Float32
    if loss in CURVATURES:
        slopes = np.float32(CURVATURES[loss]) * (targets[:, np.newaxis] - outputs)
        return slopes
    slopes = np.exp(outputs - outputs.max(axis=2, keepdims=True))
    slopes /= -slopes.sum(axis=2, keepdims=True)
    slopes[:, np.arange(len(targets)), targets] += 1
    return slopes


def _torch_moments(module: nn.Module, estimates: Float32, x: Tensor, y: Tensor, loss: str, moments: Float32) -> None:
    """Fill in the moments of models of any architecture: a gradient for each model and sample in one batched pass."""
    module.eval()
    trained = {name for name, parameter in module.named_parameters(remove_duplicate=False) if parameter.requires_grad}
    parameters: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    places, start = {}, 0
    for name, value in module.state_dict().items():
        places[name] = slice(start, start + value.numel())
        part = torch.from_numpy(estimates[:, places[name]].copy()).reshape(len(estimates), *value.shape)
        (parameters if name in trained else others)[name] = part.to(x.device, value.dtype)
        start += value.numel()

    def loss_of(values: dict[str, Tensor], rest: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
        one, wanted = inputs.unsqueeze(0), target.unsqueeze(0)
        outputs = functional_call(module, {**values, **rest}, (one,))
        return per_sample_losses(outputs, targets_of(one, wanted, loss), loss).sum()

    # Over the models too: of a small model a pass for each would spend two thirds of its time in PyTorch's overhead.
    of_samples = vmap(grad(loss_of), in_dims=(None, None, 0, 0))
    gradients = vmap(of_samples, in_dims=(0, 0, None, None))(parameters, others, x, y)
    for name, found in gradients.items():
        np.negative(found.detach().flatten(2).cpu().numpy(), out=moments[:, :, places[name]])


Float64 = NDArray[np.float64]
_MOST_ROWS = 500


@dataclass(frozen=True)
class LocalMoments:
    """One client's examples, at least two, and the moments on them.

    Source: mixed regression, Sec. III-A (one pair a client) and Alg. 3 (n_i pairs).
    Deviation: a moment matrix Y is the mean over all ordered pairs of different examples; the paper's pairs are
    disjoint.
    """

    module: nn.Module
    x: Tensor
    y: Tensor
    loss: str

    def __post_init__(self) -> None:
        """Refuse fewer than two examples."""
        if len(self.x) < 2:
            raise ValueError(f"this client has {len(self.x)} example: a moment matrix needs pairs of two.")

    def at(self, estimates: Float32, rows: slice = slice(None)) -> Float32:
        """Return the moments (A, r, R) of some examples."""
        return sample_moments(self.module, estimates, self.x[rows], self.y[rows], self.loss)

    def term(self, estimates: Float32, bases: Float32) -> Float32:
        """Return Y Q, (A, R, k), for the estimate (R,) and the basis Q of each anchor.

        Source: mixed regression, Alg. 3, l. 5 and 8.
        """
        terms = np.empty(bases.shape, dtype=np.float32)
        for part in self._anchor_blocks(*estimates.shape):
            terms[part] = self._all_pairs(estimates[part], bases[part])
        return terms

    def projected(self, estimate: Float32, basis: Float32) -> Float64:
        """Return the moments (n, k) at one estimate (R,), projected on a basis (R, k)."""
        parts = [self.at(estimate[np.newaxis], rows)[0] @ basis for rows in self._row_blocks(len(estimate))]
        return np.concatenate(parts).astype(np.float64)

    def _all_pairs(self, estimates: Float32, bases: Float32) -> Float32:
        # (s (s^T Q) - A^T (A Q)) / (n (n - 1)): all ordered pairs less those of an example with itself.
        count = len(self.x)
        # In float32, as they are sent: the moments' own noise is larger than its rounding by orders of magnitude.
        sums = np.zeros_like(estimates)
        # Transposed, (A, k, R): long rows are what NumPy is fast on.
        products = np.zeros((len(bases), bases.shape[2], bases.shape[1]), dtype=np.float32)
        for rows in self._row_blocks(estimates.size):
            moments = self.at(estimates, rows)
            sums += moments.sum(axis=1)
            products += (moments @ bases).transpose(0, 2, 1) @ moments
        pairs: Float32 = (sums[:, np.newaxis, :] @ bases).transpose(0, 2, 1) * sums[:, np.newaxis, :]
        pairs -= products
        pairs /= np.float32(count * (count - 1))
        return pairs.transpose(0, 2, 1)

    def _anchor_blocks(self, num_anchors: int, size: int) -> Iterator[slice]:
        step = max(1, LARGEST_BLOCK // (size * min(len(self.x), _MOST_ROWS)))
        return (slice(start, start + step) for start in range(0, num_anchors, step))

    def _row_blocks(self, width: int) -> Iterator[slice]:
        step = min(_MOST_ROWS, max(1, LARGEST_BLOCK // width))
        return (slice(start, start + step) for start in range(0, len(self.x), step))


def factors(client: Client) -> RecordDict:
    """Return every example's gradient at every anchor, of which this client's moment matrices are made.

    Source: mixed regression, Sec. V (direct singular value decomposition).
    """
    moments = local_moments(client).at(_estimates(client))
    return pack(LocalFactors, moments=moments, num_examples=client.num_examples)


def subspace(client: Client) -> RecordDict:
    """Return this client's product Y Q for every anchor.

    Source: mixed regression, Alg. 3, l. 5 and 8.
    """
    bases = _sent(client, kinds.BASES, kinds.BASES)
    return pack(Term, terms=local_moments(client).term(_estimates(client), bases), num_examples=client.num_examples)


def moment_descent(client: Client) -> RecordDict:
    """Move this anchor's estimate one step inside its subspace.

    Source: mixed regression, Phase 1, l. 11 to 15.
    """
    moments, received = local_moments(client), client.arrays()
    names = moments.module.state_dict().keys()
    if names != received.keys():
        raise ValueError(f"the anchor's model has the entries {sorted(received)}, this client's {sorted(names)}")
    # Flat vectors are in the order of the module's own entries, whatever order a record arrived in.
    layout = Layout.of({name: received[name] for name in names}, untrained_entries(moments.module))
    estimate = layout.flatten(received)
    basis = _sent(client, kinds.BASES, kinds.BASIS)
    projected = moments.projected(estimate.astype(np.float32), basis)
    step = anchor_step(projected)
    moments.module.load_state_dict(client.states()[0])
    loss = mean_loss(moments.module, moments.x, moments.y, moments.loss)
    # Buffers have no moments, but a basis can lean on them: all of it where the moments span too little.
    moved = layout.arrays(estimate + np.where(layout.trained, basis.astype(np.float64) @ step, 0.0))
    loss = reported(loss)
    return pack(Update, values=moved, train_loss=loss, num_examples=len(moments.x))


def local_moments(client: Client) -> LocalMoments:
    """Return this client's examples and the moments on them."""
    return LocalMoments(client.module, client.data.x_train, client.data.y_train, client.loss)


def _sent(client: Client, record: str, name: str) -> Float32:
    return view_array(client.arrays(record)[name]).astype(np.float32, copy=False)


def _estimates(client: Client) -> Float32:
    """Return the anchors' estimates (A, R)."""
    return _sent(client, kinds.ESTIMATES, kinds.ESTIMATES)


def anchor_step(projected: Float64) -> Float64:
    """Return the step (k,) in the coordinates of the basis, beta_hat sigma / 2.

    Sigma is the root of the first singular value of A, the mean over pairs of the outer products of
    `projected` (n, k), the anchor's own moments in its basis. The paper's alpha and beta are 1, as of normal inputs.

    Source: mixed regression, Phase 1, l. 11 to 15, and equation (2).
    Deviation: sigma^2 is beta_hat^T A beta_hat in the paper, which may be negative for a sample's indefinite A. In
    Fig. 1's setting coarse models are 0.710 from the true ones, 0.723 by that form; phase 2 ends equal (5 seeds). The
    singular vector's product with the mean moment is not negative; without a rule the estimates diverge. The k x k
    problem is solved exactly, not by T2 power steps. The anchor's own examples are used again, as in Sec. V.
    """
    count, total = len(projected), projected.sum(axis=0)
    moments = (np.outer(total, total) - projected.T @ projected) / (count * (count - 1))
    vectors, values, _ = np.linalg.svd(moments)
    direction: Float64 = vectors[:, 0]
    if direction @ projected.mean(axis=0) < 0:
        direction = -direction
    step: Float64 = direction * float(values[0]) ** 0.5 / 2
    return step
