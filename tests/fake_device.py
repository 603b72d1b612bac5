"""A fake GPU: tensors that say they are on another device, hold numbers, and refuse to meet the CPU's.

What crosses to the CPU is noted. The device is called `meta`, which every build of PyTorch has: for a name such as
`cuda` its autograd looks for the device itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("meta")
_CROSSING = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class FakeTensor(torch.Tensor):
    """A tensor whose numbers are on the CPU, and which is on `meta` for everyone who asks."""

    values: torch.Tensor
    # PyTorch warns where it loads values into tensors that have none.
    is_meta = property(lambda self: False)

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> "FakeTensor":
        """Make one of a CPU's tensor, whose memory it shares."""
        # Views of a tensor share its version, which those made in inference mode have not.
        with torch.inference_mode(False):
            made: FakeTensor = torch.Tensor._make_wrapper_subclass(
                cls, values.size(), strides=values.stride(), storage_offset=values.storage_offset(),
                dtype=values.dtype, device=DEVICE, requires_grad=False,
            )  # fmt: skip
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _computed(function, args, dict(kwargs or {}))


class _Device(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _computed(function, args, dict(kwargs or {}))


_fetched: list[str] = []


def _computed(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    there = [value for value in given if isinstance(value, FakeTensor)]
    device = kwargs.get("device")
    asked = None if device is None else torch.device(device).type
    if asked == DEVICE.type:
        kwargs["device"] = torch.device("cpu")
    if function is torch.ops.aten._local_scalar_dense.default and there:
        _fetched.append("item")
    elif function in _CROSSING:
        if there and (asked == "cpu" or (len(given) == 2 and not isinstance(given[0], FakeTensor))):
            _fetched.append("copy")
    elif there and any(value.dim() for value in given if not isinstance(value, FakeTensor)):
        raise RuntimeError(f"{function}: tensors on the device and on the CPU meet")
    plain = tree_map_only(FakeTensor, lambda value: value.values, (tuple(args), kwargs))
    found = function(*plain[0], **plain[1])
    if function is torch.ops.aten.copy_.default:
        return args[0]
    stays = asked == DEVICE.type or (asked is None and there)
    if not stays:
        return found
    own = {id(value.values): value for value in there}
    # What is changed in place is the tensor that was given.
    return tree_map_only(torch.Tensor, lambda value: own[id(value)] if id(value) in own else FakeTensor(value), found)


@contextmanager
def fake_device() -> Iterator[list[str]]:
    """Let `meta` be the fake device within the block, which is given what is fetched from it: a copy, or an item."""
    _fetched.clear()
    with _Device():
        yield _fetched
