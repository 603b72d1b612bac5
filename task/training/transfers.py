"""Transfers from a device to the CPU, of many tensors by one: each transfer waits for all work before it."""

from itertools import accumulate

import torch
from torch import Tensor


def on_host(*tensors: Tensor) -> list[Tensor]:
    """Return tensors, all of one device, on the CPU; those that are there already stay the same objects."""
    # Nothing at all is there as well.
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return list(tensors)
    # Widest values first: then each tensor's bytes begin where its own type may begin.
    order = sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())
    parts = [tensors[place].detach().reshape(-1).view(torch.uint8) for place in order]
    fetched = torch.cat(parts).cpu()
    found: dict[int, Tensor] = {}
    for place, part, end in zip(order, parts, accumulate(map(len, parts)), strict=True):
        tensor = tensors[place]
        found[place] = fetched[end - len(part) : end].view(tensor.dtype).view(tensor.shape)
    return [found[place] for place in range(len(tensors))]
