"""The clients of two-phase: moments and an anchor's step (phase 1), training of all K models (phase 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from flwr.app import Array, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from florets.client_app.client import Client, session
from florets.client_app.training import model_losses, reported, trained
from florets.strategies.shared.messages import NEGLIGIBLE
from florets.strategies.two_phase.messages import AnchorUpdate, LocalFactors, SoftUpdate, Term, TwoSidedFactors
from florets.task.layers import untrained_entries
from florets.task.training.linear import CURVATURES, linear_names
from florets.task.training.losses import count, mean_loss, per_sample_losses, targets_of
from florets.task.wire import Layout, kinds
from florets.task.wire.codec import pack
from florets.task.wire.records import write_array

Float32 = NDArray[np.float32]

LARGEST_BLOCK = 2**22
"""Moments computed at a time, in values: 16 MB."""


def sample_moments(module: nn.Module, estimates: Float32, x: Tensor, y: Tensor, loss: str) -> Float32:
    """Return the negative gradient of the loss of each sample at each model, float32 (A, n, R).

    `estimates` (A, R) are models, flat in the order of the state dict of `module`, which is put into eval mode and
    whose parameters do not count. Entries that are no trained parameter (buffers) have zeros, so that they never
    move.

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


Pairing = Literal["all", "halves", "single"]
Float64 = NDArray[np.float64]
_MOST_ROWS = 500


@dataclass(frozen=True)
class LocalMoments:
    """One client's examples and the moments on them.

    Parameters
    ----------
    module, x, y, loss
        See `sample_moments`; at least two examples.
    pairing
        ``all``: all ordered pairs of different examples. ``halves``: every pair of an example of the first half and
        one of the second, which is the product of the halves' means. ``single``: examples 0 and 1 only.

    Source: mixed regression, Sec. III-A (one pair a client) and Alg. 3 (n_i pairs).
    Deviation: ``all`` and ``halves`` use an example in several pairs; the paper's pairs are disjoint.
    """

    module: nn.Module
    x: Tensor
    y: Tensor
    loss: str
    pairing: Pairing

    def __post_init__(self) -> None:
        """Check what the arithmetic assumes."""
        if self.pairing not in ("all", "halves", "single"):
            raise ValueError(f"pairing={self.pairing!r} must be all, halves or single.")
        if len(self.x) < 2:
            raise ValueError(f"this client has {len(self.x)} example: a moment matrix needs pairs of two.")

    def at(self, estimates: Float32, rows: slice = slice(None)) -> Float32:
        """Return the moments (A, r, R) of some examples."""
        return sample_moments(self.module, estimates, self.x[rows], self.y[rows], self.loss)

    def term(self, left: Float32, right: Float32 | None, bases: Float32, transposed: bool) -> Float32:
        """Return Y Q, or Y^T Q if `transposed`, (A, R, k), for the basis Q of each anchor.

        The first and the second example of a pair are taken at the estimates `left` and `right` (A, R); None: the
        same.

        Source: mixed regression, Alg. 3, l. 5 and 8.
        """
        terms = np.empty(bases.shape, dtype=np.float32)
        for part in self._anchor_blocks(*left.shape):
            other = None if right is None else right[part]
            if self.pairing == "all":
                sides = (left[part], other) if not transposed or other is None else (other, left[part])
                terms[part] = self._all_pairs(*sides, bases[part])
            else:
                one, two = self._pair_means(left[part], other)
                if transposed:
                    one, two = two, one
                terms[part] = one[:, :, np.newaxis] * (two[:, np.newaxis, :] @ bases[part])
        return terms

    def factors(self, left: Float32, right: Float32 | None) -> tuple[Float32, Float32 | None]:
        """Return the factors of the moment matrices, as `direct` mode sends them.

        All pairs: every moment (A, n, R) at `left`, and at `right` unless it is None. Otherwise the two vectors (A,
        1, R) each.
        """
        if self.pairing == "all":
            return self.at(left), None if right is None else self.at(right)
        one, two = self._pair_means(left, right)
        return one[:, np.newaxis], two[:, np.newaxis]

    def projected(self, estimate: Float32, basis: Float32) -> Float64:
        """Return the moments (n, k) at one estimate (R,), projected on a basis (R, k)."""
        parts = [self.at(estimate[np.newaxis], rows)[0] @ basis for rows in self._row_blocks(len(estimate))]
        return np.concatenate(parts).astype(np.float64)

    def _all_pairs(self, outer: Float32, inner: Float32 | None, bases: Float32) -> Float32:
        # (s_a (s_b^T Q) - A^T (B Q)) / (n (n - 1)): all ordered pairs less those of an example with itself.
        count = len(self.x)
        # In float32, as they are sent: the moments' own noise is larger than its rounding by orders of magnitude.
        outer_sum = np.zeros_like(outer)
        inner_sum = outer_sum if inner is None else np.zeros_like(outer)
        # Transposed, (A, k, R): long rows are what NumPy is fast on.
        products = np.zeros((len(bases), bases.shape[2], bases.shape[1]), dtype=np.float32)
        for rows in self._row_blocks(outer.size):
            a = self.at(outer, rows)
            b = a if inner is None else self.at(inner, rows)
            outer_sum += a.sum(axis=1)
            if inner is not None:
                inner_sum += b.sum(axis=1)
            products += (b @ bases).transpose(0, 2, 1) @ a
        pairs: Float32 = (inner_sum[:, np.newaxis, :] @ bases).transpose(0, 2, 1) * outer_sum[:, np.newaxis, :]
        pairs -= products
        pairs /= np.float32(count * (count - 1))
        return pairs.transpose(0, 2, 1)

    def _pair_means(self, left: Float32, right: Float32 | None) -> tuple[Float32, Float32]:
        half = 1 if self.pairing == "single" else len(self.x) // 2
        end = 2 if self.pairing == "single" else len(self.x)
        return self._mean(left, 0, half), self._mean(left if right is None else right, half, end)

    def _mean(self, estimates: Float32, begin: int, end: int) -> Float32:
        total = np.zeros_like(estimates)
        for rows in self._row_blocks(estimates.size, begin, end):
            total += self.at(estimates, rows).sum(axis=1)
        return total / np.float32(end - begin)

    def _anchor_blocks(self, num_anchors: int, size: int) -> Iterator[slice]:
        step = max(1, LARGEST_BLOCK // (size * min(len(self.x), _MOST_ROWS)))
        return (slice(start, start + step) for start in range(0, num_anchors, step))

    def _row_blocks(self, width: int, begin: int = 0, end: int | None = None) -> Iterator[slice]:
        end = len(self.x) if end is None else end
        step = min(_MOST_ROWS, max(1, LARGEST_BLOCK // width))
        return (slice(start, min(start + step, end)) for start in range(begin, end, step))


def factors(client: Client) -> RecordDict:
    """Return the factors of this client's moment matrices: with all pairs, every example's gradient at every anchor.

    Source: mixed regression, Sec. V (direct singular value decomposition).
    """
    moments, (left, right) = local_moments(client), estimates(client)
    one, two = moments.factors(left, right)
    if two is None:
        return pack(LocalFactors, left=one, num_examples=client.num_examples)
    return pack(TwoSidedFactors, left=one, right=two, num_examples=client.num_examples)


def subspace(client: Client) -> RecordDict:
    """Return this client's product Y Q, or Y^T Q, for every anchor.

    Source: mixed regression, Alg. 3, l. 5 and 8.
    """
    moments, (left, right) = local_moments(client), estimates(client)
    bases = session.arrays(client.arrays(kinds.BASES))[kinds.BASES]
    terms = moments.term(left, right, bases, transposed=bool(client.number(kinds.TRANSPOSED, 0)))
    return pack(Term, terms=terms, num_examples=client.num_examples)


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
    basis = session.arrays(client.arrays(kinds.BASES))[kinds.BASIS]
    projected = moments.projected(estimate.astype(np.float32), basis)
    step, residual = anchor_step(
        projected,
        moments.pairing,
        client.number(kinds.STEP_ALPHA),
        client.number(kinds.STEP_BETA),
        client.number(kinds.STOP_BELOW, -1.0),
    )
    moments.module.load_state_dict(client.states()[0])
    loss = mean_loss(moments.module, moments.x, moments.y, moments.loss)
    # Buffers have no moments, but a basis can lean on them: all of it where the moments span too little.
    moved = layout.arrays(estimate + np.where(layout.trained, basis.astype(np.float64) @ step, 0.0))
    loss = reported(loss)
    return pack(AnchorUpdate, values=moved, train_loss=loss, num_examples=len(moments.x), residual=residual)


def train_soft(client: Client) -> RecordDict:
    """Train model l on the loss times this client's weight of l, for every l, and return all.

    Source: mixed regression, Phase 2, l. 6 to 8, with weights in place of the hard label (which minimises (6)).
    """
    losses = model_losses(client)
    weights = memberships(losses, client.num_examples, client.number(kinds.TEMPERATURE))
    models: list[dict[str, Array]] = []
    total = 0.0
    for index, state in enumerate(client.states()):
        update = {name: value.numpy() for name, value in state.items()}
        loss = float(losses[index])
        if weights[index] > NEGLIGIBLE:
            update, loss = trained(client, state, fraction=float(weights[index]))
        # A model that diverged has no weight: 0 times infinity would be no number.
        total += float(weights[index]) * loss if weights[index] > 0 else 0.0
        # Written at once: the arrays may be the memory of the one module that the next model is loaded into.
        models.append({name: write_array(values) for name, values in update.items()})
    return pack(
        SoftUpdate,
        vectors=models,
        train_loss=reported(total),
        num_examples=client.num_examples,
        shares=weights,
        losses=losses,
    )


def memberships(losses: NDArray[np.float64], num_examples: int, temperature: float) -> NDArray[np.float64]:
    """Return weights (K,) proportional to exp(-n L / temperature), summing to 1.

    With the likelihood's own temperature (2 sigma^2 for squared error under noise of variance sigma^2) they are the
    posterior of the label; the smaller it is, the harder they are.
    """
    if temperature <= 0:
        raise ValueError(f"temperature={temperature} must be above 0.")
    scores = num_examples * (losses - losses.min()) / temperature
    weights: NDArray[np.float64] = np.exp(-scores)
    weights /= weights.sum()
    return weights


def local_moments(client: Client) -> LocalMoments:
    """Return this client's examples and the moments on them."""
    pairing: Any = client.config.get(kinds.PAIRING)
    return LocalMoments(client.module, client.data.x_train, client.data.y_train, client.loss, pairing)


def estimates(client: Client) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return the anchors' estimates (A, R), twice where the two examples of a pair get different ones."""
    arrays = session.arrays(client.arrays(kinds.ESTIMATES))
    return arrays[kinds.LEFT], arrays.get(kinds.RIGHT)


def anchor_step(
    projected: Float64, pairing: Pairing, alpha: float = 1.0, beta: float = 1.0, stop_below: float = -1.0
) -> tuple[Float64, float]:
    """Return the step (k,) in the coordinates of the basis, beta_hat alpha sigma / (2 beta^2), and sigma.

    Sigma, the residual, is the root of A's first singular value; up to `stop_below` the anchor has arrived: no step.
    Alpha and beta bound the covariance of the inputs, both 1 for standard normal inputs. `projected` (n, k) are the
    anchor's own moments, projected on its basis; with ``single`` n/2 disjoint pairs are taken here, as in the paper.

    Source: mixed regression, Phase 1, l. 11 to 15, and equation (2).
    Deviation: sigma^2 is beta_hat^T A beta_hat in the paper. The two are one wherever A is symmetric and that form is
    not negative. But a sample's A is indefinite, and a negative form would read as an anchor that has arrived.
    In Fig. 1's setting coarse models are 0.710 from the true ones, 0.723 by that form; phase 2 ends equal (5 seeds).
    The singular vector's sign, which A leaves open, is such that its product with the mean moment is not negative;
    without a rule the estimates diverge. The k x k problem is solved exactly, not by T2 power steps. Equation (2)
    asks for points that are fresh in every round; as in the paper's experiments (Sec. V), the anchor's own examples
    are used again.
    """
    moments = moment_matrix(projected, pairing)
    vectors, values, _ = np.linalg.svd(moments)
    direction: Float64 = vectors[:, 0]
    if direction @ projected.mean(axis=0) < 0:
        direction = -direction
    residual = float(values[0]) ** 0.5
    if residual <= stop_below:
        return np.zeros_like(direction), residual
    return direction * alpha * residual / (2 * beta**2), residual


def moment_matrix(projected: Float64, pairing: Pairing) -> Float64:
    """Return A (k, k), the mean over pairs of the outer products of projected moments (n, k)."""
    count, half = len(projected), len(projected) // 2
    if pairing == "all":
        total = projected.sum(axis=0)
        pairs: Float64 = (np.outer(total, total) - projected.T @ projected) / (count * (count - 1))
        return pairs
    if pairing == "halves":
        return np.outer(projected[:half].mean(axis=0), projected[half:].mean(axis=0))
    disjoint: Float64 = projected[:half].T @ projected[half : 2 * half] / half
    return disjoint
