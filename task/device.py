"""Devices that models are trained and tested on, by name."""

import torch

_CPU = torch.device("cpu")
_TYPES = ("cpu", "cuda", "mps")


def find_device(name: str) -> torch.device:
    """Return the device of a name, such as cpu or cuda:1; auto: a GPU where this machine has one.

    Raises
    ------
    ValueError
        If this machine does not have it.
    """
    if name == "cpu":
        return _CPU
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device={name} is no device; use cpu, cuda, cuda:<number>, mps or auto") from error
    if device.type not in _TYPES:
        raise ValueError(f"device={name} is none that florets computes on; use cpu, cuda, cuda:<number>, mps or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name}, but this machine's PyTorch sees no CUDA device; use device=cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device={name}, but this machine's CUDA devices are numbered from 0 to {torch.cuda.device_count() - 1}; "
            "use one of these, or device=cpu"
        )
    if device.type == "mps" and not _has_mps():
        raise ValueError(f"device={name}, but this machine's PyTorch sees no Apple GPU; use device=cpu")
    return device


def _has_mps() -> bool:
    return torch.backends.mps.is_available()
