"""Detection of changes in what a module keeps outside its state dict: counters, lists, non-persistent buffers.

No message carries it. On a real node each message is answered by a new process, which begins with what the module is
built with; a process that serves many clients must do the same.
"""

import contextlib
import copyreg
import hashlib
import io
import pickle
from collections.abc import Collection, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from florets.task.training.modules import is_built_in

_OF_TORCH = frozenset({"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"})
"""Attributes of every module that hold what its state dict has, or what `set_mode` sets."""
_CODE = (FunctionType, BuiltinFunctionType, type, ModuleType, nn.Module)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


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
        self._module, self._shared = module, shared
        self._before = self._tokens()
        # So that no other object takes the identity of one that is gone.
        self._alive = [dict(vars(part)) for part in module.modules()]

    def changed(self) -> list[str]:
        """Return the names of the attributes that are not what they were."""
        now = self._tokens()
        names = now.keys() | self._before.keys()
        return sorted(name for name in names if now.get(name) != self._before.get(name))

    def _kept(self) -> Iterator[tuple[str, Any]]:
        """Yield what is kept, by name; of layers of PyTorch's own their objects count, and not what is inside."""
        parts = dict(self._module.named_modules())
        yield "requires_grad", [parameter.requires_grad for parameter in self._module.parameters()]
        yield "modules", list(map(id, parts.values()))
        for path, part in parts.items():
            prefix, is_layer = f"{path}." * bool(path), is_built_in(part)
            for name, value in vars(part).items():
                if name not in _OF_TORCH:
                    by_identity = is_layer and type(value) not in _SCALARS and not isinstance(value, dict)
                    yield prefix + name, id(value) if by_identity else value
            yield from ((prefix + name, part._buffers[name]) for name in part._non_persistent_buffers_set)
        kinds = {kind for part in parts.values() for kind in type(part).__mro__} if self._shared else set()
        for kind in kinds:
            if kind.__module__.partition(".")[0] not in ("torch", "builtins", "abc", "typing", "torchvision"):
                yield from ((f"{kind.__name__}.{name}", value) for name, value in _shared(kind))

    def _tokens(self) -> dict[str, object]:
        saved = {id(part) for part in self._module.modules()} | set(map(id, self._module.parameters()))
        for part in self._module.modules():
            own = part._buffers.items()
            saved |= {id(value) for name, value in own if name not in part._non_persistent_buffers_set}
        return {name: value if type(value) in _SCALARS else _token(value, saved) for name, value in self._kept()}


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


def _shared(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class that its methods can change, and the global variables that they name."""
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, FunctionType):
            for used in function.__code__.co_names:
                if not isinstance(found := function.__globals__.get(used), _CODE):
                    yield f"{name}:{used}", found
        elif not name.startswith("__"):
            yield name, value


def _token(value: Any, saved: Collection[int]) -> object:
    """Return what stands for a value; equal tokens mean that nothing inside it has changed."""
    # Most of them are hooks that nobody has registered.
    if isinstance(value, dict | list) and not value:
        return type(value)
    file = io.BytesIO()
    try:
        _Pickler(file, saved).dump(value)
    except Exception:  # the object may be anybody's; of what cannot be looked into only its identity is known
        return id(value)
    return hashlib.sha256(file.getbuffer()).digest()


class _Pickler(pickle.Pickler):
    """Serialises a value only to hash it; it is never loaded."""

    def __init__(self, file: io.BytesIO, saved: Collection[int]) -> None:
        super().__init__(file, protocol=5)
        self._saved = saved
        # Without a memo equal strings are written alike, whether they are one object or two.
        self.fast = True

    def persistent_id(self, value: Any) -> int | None:
        """Return what stands for the module's own parts and tensors, and for code."""
        is_code = isinstance(value, type | BuiltinFunctionType | ModuleType)
        return id(value) if is_code or id(value) in self._saved else None

    def reducer_override(self, value: Any) -> Any:
        """Return how a value is written, as ``__reduce_ex__`` does."""
        if isinstance(value, Tensor):
            return tuple, ((str(value.dtype), tuple(value.shape), _entries(value)),)
        if isinstance(value, torch.Generator):
            return tuple, ((bytes(value.get_state().tolist()),),)
        if isinstance(value, FunctionType):
            cells = []
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # an empty cell
                    cells.append(cell.cell_contents)
            return tuple, ((id(value), cells, value.__defaults__, vars(value)),)
        if type(value) in copyreg.dispatch_table:
            return NotImplemented
        try:
            return value.__reduce_ex__(5)
        except Exception:  # the object may be anybody's
            # Locks, files and the like are no part of the model; a counter says where it is.
            return tuple, ((id(value), repr(value)),)


def _entries(tensor: Tensor) -> object:
    """Return what changes with a tensor's entries, also by `.data` or an array that shares its memory."""
    if tensor.layout == torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return tensor.detach().cpu().resolve_conj().contiguous().flatten().view(torch.uint8).numpy()
    # Inference tensors have no version.
    return id(tensor), None if tensor.is_inference() else tensor._version
