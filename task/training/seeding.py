"""The one place where torch's global generator is touched."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def torch_seed(rng: np.random.Generator) -> int:
    """Draw the seed of torch's global generators."""
    return int(rng.integers(2**63 - 1))


@contextmanager
def torch_random(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generators from `rng` inside the block, and put their old states back after it.

    Layer initialisation and dropout draw from the global generator and take no other; everything else in the
    project passes generators along.
    """
    # Named devices, because fork_rng warns when it has to find more than one by itself; and only once CUDA is in use,
    # because asking for a generator's state would open a context on every GPU.
    used = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]  # torch leaves it without types
    with torch.random.fork_rng(devices=used):
        # Not torch.manual_seed: for each kind of device that is not in use it notes a whole traceback, which took a
        # fifth of a small client's training.
        seed = torch_seed(rng)
        torch.default_generator.manual_seed(seed)
        if used:
            torch.cuda.manual_seed_all(seed)
        yield
