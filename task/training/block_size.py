"""Best number of clients whose work is computed together: on a CPU a rule from measured times, on a GPU from memory.

The sizes for a GPU are reasoned and not measured: what a block saves there are calls, each of which occupies a small
part of the device, so that a block is as large as its memory allows.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Module

from florets.task.training.networks import Convolutions, Network, network_of

MOST = 64
"""More gained under a tenth on any network that was measured."""

MOST_CONVOLUTIONS = 6
"""On MNIST's images 2 to 12 gain about as much, 25 less: the outputs of convolutions outgrow the cache."""

FULL_STEPS_STACK = 16
"""Clients of one `full_steps_update`, which holds no stack of first layers."""

MOST_ON_DEVICE = 256
"""Not measured: of so many clients the calls that are left cost less than the clients' own messages."""

DEVICE_MEMORY = 2 * 2**30
"""Bytes that a block's work may hold on a device, beside the clients' data; less than any current GPU has."""

_MEMORY = 16 * 2**20
_BYTES = 16
"""Of one parameter in training: its value, its gradient and Adam's two moments."""

_BYTES_ON_DEVICE = 20
"""The same, and the copy in which it is fetched."""

_COPIES = 4
"""Of a layer's value in a pass forward and back: itself, its gradient, and what either way needs in between."""


def block_size(module: Module, device: torch.device | None = None) -> int:
    """Return the most clients of a block for losses, training and tests of copies of a module; 1: blocks do not pay.

    Networks that cannot be stacked at all gain nothing, and neither do those of whose parameters fewer than two
    clients' fit into the processor's cache, or a device's share of memory. None stands for the CPU.
    """
    network = network_of(module)
    if device is not None and device.type != "cpu":
        fit = DEVICE_MEMORY // (_BYTES_ON_DEVICE * max(1, _num_parameters(module)))
        able = network is not None and takes_blocks(device) and fit >= 2
        return min(MOST_ON_DEVICE, fit) if able else 1
    if network is None or stack_size(module) < 2:
        return 1
    if isinstance(network, Convolutions):
        return min(MOST_CONVOLUTIONS, stack_size(module))
    return max(FULL_STEPS_STACK, stack_size(module))


def takes_blocks(device: torch.device) -> bool:
    """Say whether clients are computed together there; an Apple GPU has no float64, in which losses are summed."""
    return device.type != "mps"


def stack_size(module: Module) -> int:
    """Return the most clients of a block that are trained in one stack.

    All that a stack trains should stay in the processor's cache: beyond that the calls that are saved cost more in
    memory accesses.
    """
    return max(1, min(MOST, _MEMORY // (_BYTES * _num_parameters(module))))


def device_stack_size(network: Network, state: Mapping[str, Tensor], x: Tensor, batch_size: int) -> int:
    """Return the most clients that are trained in one stack on a device: as many as its share of memory holds.

    Parameters
    ----------
    state
        One of the models.
    x
        Inputs of the client that has most.
    batch_size
        Samples of one step.
    """
    values = network.values(state, x.shape[1:])
    parameters = sum(value.numel() for value in state.values())
    # The last term is the stack's own copy of the samples.
    own = _BYTES_ON_DEVICE * parameters + 4 * _COPIES * min(batch_size, len(x)) * values + 4 * x.numel()
    return max(1, min(MOST_ON_DEVICE, DEVICE_MEMORY // own))


def device_samples(network: Network, states: int, state: Mapping[str, Tensor], shape: tuple[int, ...]) -> int:
    """Return the most samples of one pass forward of a number of models on a device; see `device_stack_size`."""
    return max(1, DEVICE_MEMORY // (4 * _COPIES * states * network.values(state, shape)))


def _num_parameters(module: Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
