"""A PyTorch module at work: loading, mode, precision, random draws and transfers to the CPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_DRAW_NOTHING = {
    *(nn.Sequential, nn.ModuleList, nn.Flatten, nn.Linear, nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.Identity),
    *(nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Softplus, nn.Unflatten),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm),
}
"""Layers that draw nothing while they compute; others, and own ones, may."""


_PLAIN = (
    *("state_dict", "load_state_dict", "_load_from_state_dict", "_save_to_state_dict", "set_extra_state"),
    *("train", "eval"),
)
"""Methods of a module without which its entries and its mode can be read and set as they lie in memory."""


@dataclass(frozen=True)
class _Parts:
    """What a module consists of: its modules, and by name the dictionary in which each entry is looked up."""

    modules: tuple[nn.Module, ...]
    entries: tuple[tuple[str, dict[str, Tensor], str], ...]
    is_plain: bool
    normalises: bool
    draws: bool


_known: "WeakKeyDictionary[nn.Module, _Parts]" = WeakKeyDictionary()


def _parts(module: nn.Module) -> _Parts:
    if module not in _known:
        _known[module] = _read(module)
    return _known[module]


def _read(module: nn.Module) -> _Parts:
    entries = []
    for prefix, part in module.named_modules(remove_duplicate=False):
        own: tuple[dict[str, Any], ...] = (part._parameters, part._buffers)
        for tensors in own:
            entries += [
                (f"{prefix}.{name}" if prefix else name, tensors, name)
                for name, value in tensors.items()
                if value is not None and name not in part._non_persistent_buffers_set
            ]
    modules = tuple(module.modules())
    is_plain = all(getattr(type(part), name) is getattr(nn.Module, name) for part in modules for name in _PLAIN)
    hooks = (
        (
            part._load_state_dict_pre_hooks,
            part._load_state_dict_post_hooks,
            part._state_dict_hooks,
            part._state_dict_pre_hooks,
        )
        for part in modules
    )
    return _Parts(
        modules,
        tuple(entries),
        is_plain and not any(map(any, hooks)) and [name for name, *_ in entries] == list(module.state_dict()),
        any(isinstance(part, _BatchNorm) for part in modules),
        not all(_draws_nothing(part) for part in modules),
    )


def _draws_nothing(part: nn.Module) -> bool:
    own = type(part).__module__.startswith("florets.task.models.")
    return (own or type(part) in _DRAW_NOTHING) and not (part._backward_hooks or part._backward_pre_hooks)


def is_built_in(part: nn.Module) -> bool:
    """Return whether a layer's own class is PyTorch's or the project's, whatever the classes of its parts."""
    return type(part).__module__.startswith(
        ("torch.nn.modules.", "torch.jit.", "torch._dynamo.", "florets.task.models.")
    )


def keeps_something(module: nn.Module) -> bool:
    """Say whether a module may keep something outside its state dict: built-in layers without hooks do not."""
    return any(
        not is_built_in(part)
        or part._non_persistent_buffers_set
        or part._forward_hooks
        or part._forward_pre_hooks
        or part._backward_hooks
        or part._backward_pre_hooks
        for part in module.modules()
    )


def is_known(part: nn.Module) -> bool:
    """Say whether a layer is one of PyTorch's that draws nothing; of layers with parts these are asked as well."""
    return type(part) in _DRAW_NOTHING


def load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Do as ``module.load_state_dict(state)`` does."""
    parts = _parts(module)
    own = [tensors[name] for _, tensors, name in parts.entries]
    new = [state.get(key) for key, *_ in parts.entries]
    shapes = [None if value is None else value.shape for value in new]
    if not parts.is_plain or len(state) != len(new) or shapes != [value.shape for value in own]:
        module.load_state_dict(state)
        return
    with torch.no_grad():
        for old, value in zip(own, new, strict=True):
            old.copy_(value)  # type: ignore[arg-type]  # its shape was looked at


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return what ``module.state_dict(keep_vars=True)`` does: the module's own tensors, in that order."""
    parts = _parts(module)
    if parts.is_plain:
        return {key: tensors[name] for key, tensors, name in parts.entries}
    found: dict[str, Tensor] = module.state_dict(keep_vars=True)
    return found


def named_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return what ``module.named_parameters(remove_duplicate=False)`` yields: tied weights have several names."""
    if _parts(module).is_plain:
        return {name: value for name, value in state_of(module).items() if isinstance(value, nn.Parameter)}
    return dict(module.named_parameters(remove_duplicate=False))


def parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return what ``module.parameters()`` yields."""
    return list({id(value): value for value in named_parameters(module).values()}.values())


def normalises(module: nn.Module) -> bool:
    """Say whether a module normalises by batches, which need more than one sample in training."""
    return _parts(module).normalises


def set_mode(module: nn.Module, training: bool) -> None:
    """Do as ``module.train(training)`` does."""
    parts = _parts(module)
    if not parts.is_plain:
        module.train(training)
        return
    for part in parts.modules:
        # What assigning it comes to, after a module's search for parameters and buffers of this name.
        part.__dict__["training"] = training


def draws(module: nn.Module) -> bool:
    """Say whether a module may draw from torch's generator while it computes: dropout does, and own layers may."""
    parts = _parts(module)
    # A hook may come at any time.
    return parts.draws or any(part._forward_hooks or part._forward_pre_hooks for part in parts.modules)


def torch_seed(rng: np.random.Generator) -> int:
    """Draw the seed of torch's global generators."""
    return int(rng.integers(2**63 - 1))


@contextmanager
def torch_random(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generators from `rng` inside the block, and put their old states back after it."""
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
