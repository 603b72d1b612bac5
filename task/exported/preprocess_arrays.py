"""Inputs of a file in the shape that the models take: .json and .pt need torch alone, .npy and .npz NumPy as well."""

import json
from pathlib import Path

import torch

ABOUT = json.loads(Path(__file__).with_name("export.json").read_text(encoding="utf-8"))


def read_inputs(data: str) -> tuple[torch.Tensor, dict[str, list[str]]]:
    """Return inputs float32 (n, *input_shape) of a file as the run's sites have them: see README.md."""
    suffix, shape = Path(data).suffix.lower(), tuple(ABOUT["input_shape"])
    if suffix not in (".json", ".pt", ".npy", ".npz"):
        raise ValueError(f"{data}: give .json, .pt, .npy or .npz")
    try:
        x = _loaded(data, suffix)
    except ValueError:
        raise ValueError(f"{data}: is damaged, or holds something else than numbers: save it again") from None
    flat = (torch.Size(shape).numel(),)
    if not len(x) or tuple(x.shape[1:]) not in (shape, flat, *([shape[1:]] if shape[0] == 1 else [])):
        raise ValueError(f"{data}: has shape {tuple(x.shape)}, but the models take {('n', *shape)}")
    # Bytes are pixels.
    x = x / torch.tensor(255.0) if x.dtype == torch.uint8 else x.double()
    if ABOUT.get("mean"):
        mean, std = (torch.tensor(ABOUT[name], dtype=torch.float64) for name in ("mean", "std"))
        x = (x.reshape(len(x), *shape) - mean) / std
    x = x.float()
    if not x.isfinite().all():
        raise ValueError(f"{data}: some of the inputs are not finite numbers")
    return x.reshape(len(x), *shape), {}


def _loaded(data: str, suffix: str) -> torch.Tensor:
    if suffix == ".json":
        return torch.tensor(json.loads(Path(data).read_text(encoding="utf-8")), dtype=torch.float64)
    if suffix == ".pt":
        saved: torch.Tensor = torch.load(data, weights_only=True)
        return saved
    import numpy as np

    found = np.load(data, allow_pickle=False)
    return torch.from_numpy(found if suffix == ".npy" else found["x"])
