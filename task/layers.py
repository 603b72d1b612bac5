"""The layers of a model by name: what stays at home, which entries are trained, and which are its body and head."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from numpy.typing import NDArray
from torch.jit import ScriptModule
from torch.nn import Module, Parameter

_HEAD_LAYERS, _AT_HOME = "head_layers", "_kept_at_home"


def keep_at_home(module: Module) -> None:
    """Leave the parameters that the model freezes itself out of its state dict: they are never sent."""
    named = module.named_parameters(remove_duplicate=False)
    names = [name for name, parameter in named if not parameter.requires_grad]
    if names and not isinstance(module, ScriptModule):
        # Through setattr, because torch types a module's attributes as tensors and modules.
        setattr(module, _AT_HOME, tuple(names))
        module._register_state_dict_hook(_leave_out)  # type: ignore[no-untyped-call]  # torch leaves it without types
        module.register_load_state_dict_post_hook(_do_without)  # type: ignore[no-untyped-call]


def make_whole(module: Module) -> Module:
    """Undo `keep_at_home`: the state dict holds all parameters again."""
    if hasattr(module, _AT_HOME):
        setattr(module, _AT_HOME, ())
    return module


def at_home(module: Module) -> dict[str, Parameter]:
    """Return the parameters that stay at home by their names; a tied one has several."""
    named = dict(module.named_parameters(remove_duplicate=False))
    return {name: named[name] for name in getattr(module, _AT_HOME, ())}


def copied(module: Module, build: Callable[[], Module]) -> Module:
    """Return a copy of a module that shares the parameters that stay at home; `build` makes what cannot be copied."""
    try:
        return deepcopy(module, {id(parameter): parameter for parameter in at_home(module).values()})
    except Exception:  # the module may be anybody's, and hold locks, files or tensors with a graph
        return build().to(next(module.parameters()).device)


def at_home_arrays(module: Module) -> dict[str, NDArray[Any]]:
    """Return the values of `at_home` as NumPy has them: those in bfloat16 as float32, which holds them exactly."""
    values = {name: value.detach().cpu() for name, value in at_home(module).items()}
    return {name: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for name, v in values.items()}


def load_at_home(module: Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put saved values into the parameters that stay at home; ValueError where they are not these parameters."""
    own = at_home(module)
    here, saved = ({name: tuple(value.shape) for name, value in found.items()} for found in (own, arrays))
    if here != saved:
        raise ValueError(f"the saved models have the frozen parameters {saved}, but the run's task.model has {here}.")
    with torch.no_grad():
        for name, values in arrays.items():
            own[name].copy_(torch.from_numpy(values.copy()))


def at_home_hash(module: Module) -> str:
    """Return 16 hexadecimal digits over the names and values of `at_home`; empty where nothing stays at home."""
    digest, found = hashlib.sha256(), at_home(module)
    for name, value in found.items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16] if found else ""


def _leave_out(module: Module, state: dict[str, Any], prefix: str, _: object) -> None:
    for name in getattr(module, _AT_HOME):
        state.pop(prefix + name, None)


def _do_without(module: Module, keys: Any) -> None:
    keys.missing_keys[:] = [name for name in keys.missing_keys if name not in getattr(module, _AT_HOME)]


def untrained_entries(module: Module) -> list[str]:
    """Return the names of the state dict's entries that no gradient moves, such as running statistics."""
    # A tied weight stands in the state dict under each of its names.
    trained = {name for name, parameter in module.named_parameters(remove_duplicate=False) if parameter.requires_grad}
    return [name for name in module.state_dict() if name not in trained]


def with_head(module: Module, *layers: str) -> Module:
    """Mark the layers of these name prefixes as the module's head, for `body_and_head`; return the module."""
    # Through setattr, because torch types a module's attributes as tensors and modules.
    setattr(module, _HEAD_LAYERS, layers)
    return module


def body_and_head(module: Module, head_layers: Sequence[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the name prefixes of a model's body and of its head: together all of its entries."""
    head = _named_head(module, head_layers)
    entries = list(module.state_dict())
    if not head:
        raise ValueError(
            f"the model does not say which layers are its head: set task.head_layers to some of {', '.join(entries)}."
        )
    _check_layers("task.head_layers", entries, head)
    in_head = [name for name in entries if any(is_of_layer(name, prefix) for prefix in head)]
    body = [name for name in entries if name not in in_head]
    return tuple(dict.fromkeys(_prefix(name, in_head) for name in body)), head


def head_or_last(module: Module, head_layers: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the name prefixes of a model's head; where nothing says which it is, its last layer with parameters."""
    layers = [name for name, part in module.named_modules() if next(part.parameters(recurse=False), None) is not None]
    if not layers:
        raise ValueError("the model has no parameters, and so no head.")
    return _named_head(module, head_layers) or (layers[-1],)


@contextmanager
def frozen_layers(module: Module, prefixes: Sequence[str]) -> Iterator[None]:
    """Keep the layers of these name prefixes as they are inside the block; the module must be in train mode."""
    _check_layers("frozen layers", list(module.state_dict()), prefixes)
    named = module.named_parameters(remove_duplicate=False)
    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    kept = [parameter for name, parameter in trained if any(is_of_layer(name, prefix) for prefix in prefixes)]
    for parameter in kept:
        parameter.requires_grad_(False)
    try:
        if not any(parameter.requires_grad for _, parameter in trained):
            raise ValueError(f"frozen layers {list(prefixes)} leave nothing to train.")
        for name, part in module.named_modules():
            if name and any(is_of_layer(name, prefix) for prefix in prefixes):
                part.eval()
        yield
    finally:
        for parameter in kept:
            parameter.requires_grad_(True)


def _check_layers(what: str, entries: Sequence[str], prefixes: Sequence[str]) -> None:
    for prefix in prefixes:
        if not any(is_of_layer(name, prefix) for name in entries):
            raise ValueError(
                f"{what}: no layer is called {prefix!r}; the entries are {', '.join(entries)}, and what the model "
                "freezes has none."
            )


def is_of_layer(name: str, prefix: str) -> bool:
    """Say whether an entry of this name belongs to the layer of this name prefix."""
    return name == prefix or name.startswith(f"{prefix}.")


def _named_head(module: Module, head_layers: Sequence[str]) -> tuple[str, ...]:
    return tuple(head_layers) or tuple(getattr(module, _HEAD_LAYERS, ()))


def _prefix(name: str, others: Sequence[str]) -> str:
    """Return the name of an entry's layer; its own name where the layer also holds one of the `others`."""
    layer = name.rpartition(".")[0]
    return name if not layer or any(is_of_layer(other, layer) for other in others) else layer
