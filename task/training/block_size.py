"""Best number of clients whose work is computed together: a rule from measured times."""

from torch.nn import Module

from florets.task.training.networks import Convolutions, network_of

MOST = 64
"""More gained under a tenth on any network that was measured."""

MOST_CONVOLUTIONS = 6
"""On MNIST's images 2 to 12 gain about as much, 25 less: the outputs of convolutions outgrow the cache."""

_MEMORY = 16 * 2**20
_BYTES = 16
"""Of one parameter in training: its value, its gradient and Adam's two moments."""


def block_size(module: Module) -> int:
    """Return the most clients of a block for local training of copies of a module; 1 where blocks do not pay.

    The stack of all that a block trains should stay in the processor's cache: beyond that the calls that are saved
    cost more in memory accesses. Networks of whose parameters fewer than two clients' fit gain nothing, and neither
    do those that cannot be stacked at all.
    """
    network = network_of(module)
    if network is None:
        return 1
    most = MOST_CONVOLUTIONS if isinstance(network, Convolutions) else MOST
    size = sum(parameter.numel() for parameter in module.parameters())
    return max(1, min(most, _MEMORY // (_BYTES * size)))
