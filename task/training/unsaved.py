"""Detection of changes in what a module keeps outside its state dict: counters, lists, non-persistent buffers.

No message carries it. On a real node each message is answered by a new process, which begins with what the module is
built with; a process that serves many clients must do the same.
"""

import random
import sys
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from florets.task.training.modules import is_built_in

_OF_TORCH = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"})
"""Attributes of every module that hold what its state dict has, or what `set_mode` sets."""
_CONTAINERS = (list, dict, set, deque)
_CODE = (FunctionType, BuiltinFunctionType, type, ModuleType, nn.Module)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device)
_VALUES = (bool, int, str, bytes, type(None), type, torch.dtype, torch.device, BuiltinFunctionType, ModuleType)


class Unsaved:
    """What a module kept outside its state dict when this was made.

    Parameters
    ----------
    module
        The module; its own tensors, those of the state dict, do not count.
    shared
        Also what its code shares with other modules: attributes of its classes, and variables of theirs.
    """

    def __init__(self, module: nn.Module, shared: bool = False) -> None:
        self._look, self._parameters = partial(_Walk, module, shared), list(module.parameters())
        self._trained = [value.requires_grad for value in self._parameters]
        walk = self._look()
        self._spaces = [
            space
            for prefix, part in module.named_modules()
            for space in _spaces(f"{prefix}." * bool(prefix), part, walk)
        ]
        if shared:
            kinds = {kind for part in module.modules() for kind in type(part).__mro__ if not _is_library(kind)}
            self._spaces += [_Space.of(f"{kind.__name__}.", partial(_shared, kind), walk) for kind in kinds]
        # So that no other object takes the identity of one that is gone.
        self._alive = walk.alive

    def changed(self) -> list[str]:
        """Return the names of the attributes that are not what they were."""
        names = [name for space in self._spaces for name in space.changed(self._look)]
        if [value.requires_grad for value in self._parameters] != self._trained:
            names.append("requires_grad")
        return sorted(names)


@dataclass(frozen=True)
class _Space:
    """Named values as they were when this was made.

    `look` returns the present ones; there were `size`, with those that do not count. Those in `tokens` may change
    inside, and are compared by their tokens; those in `empty` were empty containers. Of the others it is enough that
    they are the same objects.
    """

    prefix: str
    look: Callable[[], Mapping[str, Any]]
    size: int
    before: Mapping[str, Any]
    empty: tuple[str, ...]
    tokens: Mapping[str, Hashable]

    @classmethod
    def of(
        cls,
        prefix: str,
        look: Callable[[], Mapping[str, Any]],
        walk: "_Walk",
        left_out: Container[str] = (),
        deep: bool = True,
    ) -> "_Space":
        values = look()
        before = {name: value for name, value in values.items() if name not in left_out}
        empty = tuple(name for name, value in before.items() if isinstance(value, _CONTAINERS) and not value)
        tokens = {
            name: walk.token(value)
            for name, value in before.items()
            if name not in empty and not isinstance(value, _SCALARS) and (deep or name.endswith("_hooks"))
        }
        return cls(prefix, look, len(values), before, empty, tokens)

    def changed(self, walk_of: Callable[[], "_Walk"]) -> list[str]:
        now, walk = self.look(), None
        names = [name for name in self.empty if now.get(name)]
        for name, value in self.before.items():
            if (found := now.get(name, _Walk)) is not value or name in self.tokens:
                walk = walk or walk_of()
                if found is _Walk or walk.token(found) != (self.tokens.get(name) or walk.token(value)):
                    names.append(name)
        if len(now) != self.size:
            names += now.keys() - self.before.keys() - _OF_TORCH
        return [self.prefix + name for name in names]


def _spaces(prefix: str, part: nn.Module, walk: "_Walk") -> Iterator[_Space]:
    """Yield a module's own attributes, its non-persistent buffers and its parts."""
    yield _Space.of(prefix, partial(vars, part), walk, _OF_TORCH, deep=not is_built_in(part))
    if part._non_persistent_buffers_set:
        yield _Space.of(prefix, partial(_passing_buffers, part), walk)
    if part._modules:
        # TorchScript's is no mapping.
        yield _Space.of(prefix, lambda: dict(part._modules.items()), walk, deep=False)


def _passing_buffers(part: nn.Module) -> dict[str, Tensor | None]:
    return {name: value for name, value in part._buffers.items() if name in part._non_persistent_buffers_set}


def keeps_something(module: nn.Module) -> bool:
    """Return whether a module may keep something outside its state dict: built-in layers without hooks do not."""
    return any(
        not is_built_in(part)
        or part._non_persistent_buffers_set
        or part._forward_hooks
        or part._forward_pre_hooks
        or part._backward_hooks
        or part._backward_pre_hooks
        for part in module.modules()
    )


def _is_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing", "torchvision")


def _shared(kind: type) -> dict[str, Any]:
    """Return the attributes of a class that its methods can change, and the global variables that they name."""
    found: dict[str, Any] = {}
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, FunctionType):
            found |= {f"{name}:{one}": seen for one, seen in _variables(function).items()}
        elif not name.startswith("__"):
            found[name] = value
    return found


def _variables(function: FunctionType) -> dict[str, Any]:
    """Return the global variables that a function names."""
    used = {one: function.__globals__.get(one) for one in function.__code__.co_names}
    return {one: value for one, value in used.items() if not isinstance(value, _CODE)}


class _Walk:
    """One look at values: equal tokens stand for what has not changed since."""

    def __init__(self, module: nn.Module, shared: bool = False) -> None:
        self._shared = shared
        self.alive: list[Any] = []
        self._seen: dict[int, int] = {}
        self._parts = {id(part) for part in module.modules()}
        self._saved = {id(value) for value in (*module.parameters(), *_saved_buffers(module))}

    def token(self, value: Any) -> Hashable:
        """Return what stands for a value; equal tokens mean that nothing inside it has changed."""
        self._seen = {}
        return self._token(value)

    def _token(self, value: Any) -> Hashable:
        if isinstance(value, _VALUES):
            return value if type(value) is not bool else (bool, value)
        if isinstance(value, float | complex | np.generic):
            return (type(value), repr(value))
        if id(value) in self._saved or id(value) in self._parts:
            return ("own", id(value))
        if id(value) in self._seen:
            return ("again", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        self.alive.append(value)
        return (type(value), self._inside(value))

    def _inside(self, value: Any) -> Hashable:
        if isinstance(value, Tensor):
            return (id(value), _entries(value))
        if isinstance(value, np.ndarray):
            return (
                value.dtype.str,
                value.shape,
                crc32(np.ascontiguousarray(value).data) if value.dtype != object else self._all(value.flat),
            )
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, np.random.Generator):
            return repr(value.bit_generator.state)
        if isinstance(value, np.random.RandomState):
            return repr(value.get_state())
        if isinstance(value, torch.Generator):
            return bytes(value.get_state().tolist())
        if isinstance(value, random.Random):
            return value.getstate()
        if isinstance(value, Mapping):
            return tuple((self._token(name), self._token(one)) for name, one in value.items())
        if isinstance(value, list | tuple | deque):
            return self._all(value)
        if isinstance(value, set | frozenset):
            return frozenset(map(self._token, value))
        if isinstance(value, FunctionType):
            cells: list[Any] = []
            for cell in value.__closure__ or ():
                # A cell may be empty as yet.
                with suppress(ValueError):
                    cells.append(cell.cell_contents)
            own = (id(value), self._all(cells), self._all(value.__defaults__ or ()), self._token(vars(value)))
            return (*own, self._token(_variables(value))) if self._shared else own
        if isinstance(value, MethodType):
            return (id(value.__func__), self._token(value.__self__))
        if isinstance(value, partial):
            return (self._token(value.func), self._all(value.args), self._token(value.keywords))
        if type(value).__module__ == "itertools":
            return repr(value)
        if type(value).__module__.partition(".")[0] in sys.stdlib_module_names - {"types"}:
            # Loggers, locks, paths, files: what is behind them is not the model's.
            return id(value)
        fields = {name: getattr(value, name) for kind in type(value).__mro__ for name in _slots(kind, value)}
        if fields or hasattr(value, "__dict__"):
            return self._token({**fields, **getattr(value, "__dict__", {})})
        return id(value)

    def _all(self, values: Iterable[Any]) -> Hashable:
        return tuple(map(self._token, values))


def _entries(tensor: Tensor) -> int | None:
    """Return what changes with a tensor's entries, also by `.data` or an array that shares its memory."""
    if tensor.layout == torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return crc32(tensor.detach().cpu().resolve_conj().contiguous().flatten().view(torch.uint8).numpy().data)
    # Inference tensors have no version.
    return None if tensor.is_inference() else tensor._version


def _slots(kind: type, value: Any) -> list[str]:
    names = vars(kind).get("__slots__", ())
    return [name for name in ((names,) if isinstance(names, str) else names) if hasattr(value, name)]


def _saved_buffers(module: nn.Module) -> Iterator[Tensor]:
    for part in module.modules():
        for name, value in part._buffers.items():
            if value is not None and name not in part._non_persistent_buffers_set:
                yield value
