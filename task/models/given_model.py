"""Model functions made of what is given in Python: a function of two parameters, a class, a module."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module

from florets.task.adapters import begin_apart

_GIVEN = ("input_shape", "num_outputs")
_FORM = (
    "give a function or class of two parameters, the shape of one input and the number of outputs, a torch.nn.Module "
    "class without required parameters, or a module"
)


@dataclass(frozen=True)
class Builder:
    """A function or class that knows its sizes, or takes the shape of one input and the number of outputs first."""

    build: Callable[..., Module]
    takes_sizes: bool

    def __call__(self, input_shape: tuple[int, ...], num_outputs: int, **options: Any) -> Module:
        """Build a module."""
        return self.build(input_shape, num_outputs, **options) if self.takes_sizes else self.build(**options)


@dataclass(frozen=True)
class Architecture:
    """A module, of which each model is a copy whose parameters are drawn anew, but for those that are frozen."""

    module: Module

    def __call__(self, input_shape: tuple[int, ...], num_outputs: int) -> Module:
        """Build a copy."""
        module = copy.deepcopy(self.module).cpu().train()
        for layer in module.modules():
            if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
                layer.reset_parameters()  # type: ignore[operator]  # `model_function` has looked
        with torch.no_grad():
            for parameter, given in zip(module.parameters(), self.module.parameters(), strict=True):
                if not given.requires_grad:
                    parameter.copy_(given)
        # Drawn as other layers are, adapters would drown what they are added to.
        begin_apart(module)
        return module


def model_function(given: Any) -> Callable[..., Any]:
    """Return what a model function is made of `given`: itself where it has the parameters of one."""
    if isinstance(given, Module):
        for name, layer in given.named_modules():
            trained = any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
            if trained and not callable(getattr(layer, "reset_parameters", None)):
                raise ValueError(
                    f"layer {name or 'itself'!r} ({type(layer).__name__}) has parameters and no reset_parameters(): "
                    "give the module's class, or a function that builds it"
                )
        return Architecture(given)
    if not callable(given):
        raise ValueError(f"a {type(given).__name__} builds no module; {_FORM}")
    try:
        parameters = inspect.signature(given).parameters.values()
    except (ValueError, TypeError):
        raise ValueError(f"its parameters cannot be read; {_FORM}") from None
    by_keyword = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if by_keyword.issuperset(_GIVEN):
        return given  # type: ignore[no-any-return]  # callable() was checked
    of_many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [one for one in parameters if one.default is one.empty and one.kind not in of_many]
    positional = [one for one in required if one.kind is not one.KEYWORD_ONLY]
    if not required or len(required) == len(positional) == 2:
        return Builder(given, takes_sizes=bool(required))
    names = ", ".join(one.name for one in required)
    raise ValueError(f"it requires {len(required)} parameters ({names}); {_FORM}")
