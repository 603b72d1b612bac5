"""Plain steps on all samples, in which inner products of samples move the first layer's outputs, not its weights.

All steps have the same inputs, of which n samples have n x n inner products; the weights, often many more, are moved
once.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from florets.task.training.loop import PlainOptimizer
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.networks import Dense, Network
from florets.task.training.settings import Training
from florets.task.training.vectorised import Share, Trained

_LEAST_GAIN = 1.5
"""Below that ratio of the two ways' multiplications steps of the weights are as fast."""


def pays_off(network: Network, x: Tensor, training: Training) -> bool:
    """Say whether `stacked_full_steps` trains with far fewer multiplications; `x` is of the client that has most."""
    if not isinstance(network, Dense) or not training.takes_full_steps(len(x)) or x.device.type != "cpu":
        return False
    first, *after = (layer for _, layer in network.layers)
    if not after or not isinstance(first, nn.Linear) or not (network.flattens or x.ndim == 2):
        return False
    steps, size, width = training.num_steps(1), first.in_features, first.out_features
    # Of a sample: forward and back at every step; or once forward, inner products and weights, and their use.
    return 2 * steps * size * width > _LEAST_GAIN * (2 * size * width + len(x) * size + steps * len(x) * width)


def stacked_full_steps(network: Network, shares: Sequence[Share], loss: str, training: Training) -> list[Trained]:
    """Train each client's model on its own data, where it `pays_off`; see `vectorised.stacked_update`.

    Source: the dual form of gradient descent on a linear layer, for W' = W - r sum D_s^T X:
    X W'^T = X W^T - r X X^T sum D_s.
    """
    assert isinstance(network, Dense)
    first, after = Dense(network.layers[:1]), Dense(network.layers[1:])
    weight, *bias = first.names
    stacks = {name: torch.stack([share.state[name] for share in shares]) for name in network.names}
    # What fills up a smaller client's samples weighs nothing.
    x = pad_sequence([share.x.flatten(1) for share in shares], batch_first=True)
    targets = pad_sequence([targets_of(share.x, share.y, loss) for share in shares], batch_first=True).flatten(0, 1)
    weights = pad_sequence([torch.full((len(share.x),), 1 / len(share.x)) for share in shares], batch_first=True)
    # A bias is the weight of an input that is always 1.
    products, start = x @ x.mT + len(bias), first.outputs(stacks, x)
    z, rate, steps = start.clone().requires_grad_(), training.learning_rate, training.num_steps(1)
    rest = [stacks[name].requires_grad_() for name in after.names]
    optimizer = PlainOptimizer(rest, training)
    for _ in range(steps):
        if z.grad is not None:
            with torch.no_grad():
                torch.baddbmm(start, products, z.grad, alpha=-rate, out=z)
        for parameter in rest:
            parameter.grad = None
        losses = per_sample_losses(after.outputs(stacks, z).flatten(0, 1), targets, loss).view_as(weights)
        losses.backward(weights)  # type: ignore[no-untyped-call]  # torch leaves it without types
        optimizer.step()
    # Never set back: the sum over all steps.
    slopes = z.grad
    assert slopes is not None
    stacks[weight].baddbmm_(slopes.mT, x, alpha=-rate)
    for name in bias:
        stacks[name] -= rate * slopes.sum(dim=1)
    means = (losses.detach() * weights).sum(dim=1)
    arrays = {name: stack.detach().numpy() for name, stack in stacks.items()}
    return [
        Trained({name: stack[row] for name, stack in arrays.items()}, means[row].item(), steps * len(share.x))
        for row, share in enumerate(shares)
    ]
