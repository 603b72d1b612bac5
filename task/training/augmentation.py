"""Augmentation: random changes of the inputs of each training batch, on the device that computes (train.augment)."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from florets.task.imported import Function, imported, other_parameters
from florets.task.registry import OwnCodeFailed
from florets.task.training.modules import torch_random

KEY = "train.augment"
_PARAMETERS = ["x", "rng"]
_PADDING = 4


class Augmentation:
    """One training's augmentation: called with the inputs of a batch, it returns changed ones.

    `name` is a built-in one, or the import path ``package.module:function`` of a function ``f(x, rng)``: of inputs
    (n, *input_shape), with a NumPy generator for its draws. It returns a tensor of the same shape and type. What it
    draws from PyTorch's global generators, as torchvision's transforms do, is seeded too. Raise ValueError for
    another name.
    """

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        self._function, self._rng, self._is_own = _resolved(name), rng, ":" in name
        self._name = name

    def __call__(self, x: Tensor) -> Tensor:
        """Return the inputs of a batch, (n, *input_shape), changed; `x` itself stays as it is."""
        if not self._is_own:
            if x.dim() != 4:
                raise ValueError(
                    f"{KEY}={self._name}: is for images (channels, height, width), and an input has the shape "
                    f"{tuple(x.shape[1:])}; leave it out, or name a function of your own as package.module:function."
                )
            return self._function(x, self._rng)  # type: ignore[no-any-return]  # the built-in ones return tensors
        with torch.no_grad(), torch_random(self._rng):
            try:
                found = self._function(x=x.clone(), rng=self._rng)
            except Exception as error:  # a user's function may raise anything
                raise OwnCodeFailed(f"{KEY}={self._name} failed with {type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor) or (found.shape, found.dtype) != (x.shape, x.dtype):
            is_tensor = isinstance(found, Tensor)
            shown = f"{found.dtype} {tuple(found.shape)}" if is_tensor else type(found).__name__
            raise ValueError(
                f"{KEY}={self._name}: must return a tensor like its input, {x.dtype} {tuple(x.shape)}, and returned "
                f"{shown}."
            )
        return found


def check_augmentation(name: str, input_shape: Sequence[int]) -> None:
    """Try an augmentation on inputs of zeros; see `Augmentation`."""
    Augmentation(name, np.random.default_rng(0))(torch.zeros(2, *input_shape))


def _flip(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Mirror half of the images, left to right."""
    mirrored = torch.from_numpy(rng.random(len(x)) < 0.5).to(x.device)
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


def _crop(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Move each image by up to `_PADDING` pixels in height and width; what comes in from outside is 0."""
    n, _, height, width = x.shape
    down, right = torch.from_numpy(rng.integers(0, 2 * _PADDING + 1, (2, n))).to(x.device)
    rows = down[:, None] + torch.arange(height, device=x.device)
    columns = right[:, None] + torch.arange(width, device=x.device)
    each = torch.arange(n, device=x.device)[:, None, None]
    padded = F.pad(x, (_PADDING,) * 4).permute(0, 2, 3, 1)
    return padded[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _flip_crop(x: Tensor, rng: np.random.Generator) -> Tensor:
    return _flip(_crop(x, rng), rng)


BUILT_IN: Mapping[str, Callable[[Tensor, np.random.Generator], Tensor]] = {
    "flip": _flip,
    "crop": _crop,
    "flip_crop": _flip_crop,
}


def _resolved(name: str) -> Function:
    if ":" in name:
        # Looked up each time: its module may have been edited, and imported anew, since.
        function = imported(f"{KEY}={name}", name)
        _check_parameters(function, name)
        return function
    if name not in BUILT_IN:
        near = difflib.get_close_matches(name, BUILT_IN, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{KEY}={name}: is unknown.{hint} Known: {', '.join(BUILT_IN)}, a function of your own as "
            "package.module:function, or null for none."
        )
    return BUILT_IN[name]


@cache
def _check_parameters(function: Function, name: str) -> None:
    other_parameters(f"{KEY}={name}", function, _PARAMETERS, options=False)
