"""Best number of clients whose work is computed together: a rule from measured times."""

from torch.nn import Module

from florets.task.training.networks import Convolutions, network_of

MOST = 64
"""More gained under a tenth on any network that was measured."""

MOST_CONVOLUTIONS = 6
"""On MNIST's images 2 to 12 gain about as much, 25 less: the outputs of convolutions outgrow the cache."""

FULL_STEPS_STACK = 16
"""Clients of one `full_steps_update`, which holds no stack of first layers."""

_MEMORY = 16 * 2**20
_BYTES = 16
"""Of one parameter in training: its value, its gradient and Adam's two moments."""


def block_size(module: Module) -> int:
    """Return the most clients of a block for losses, training and tests of copies of a module; 1: blocks do not pay.

    Networks that cannot be stacked at all gain nothing, and neither do those of whose parameters fewer than two
    clients' fit into the processor's cache.
    """
    network = network_of(module)
    if network is None or stack_size(module) < 2:
        return 1
    if isinstance(network, Convolutions):
        return min(MOST_CONVOLUTIONS, stack_size(module))
    return max(FULL_STEPS_STACK, stack_size(module))


def stack_size(module: Module) -> int:
    """Return the most clients of a block that are trained in one stack.

    All that a stack trains should stay in the processor's cache: beyond that the calls that are saved cost more in
    memory accesses.
    """
    size = sum(parameter.numel() for parameter in module.parameters())
    return max(1, min(MOST, _MEMORY // (_BYTES * size)))
