"""K models in one `ArrayRecord`: entries `<k>/<name>`; layers that all models share travel once, as `<name>`."""

import re
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from florets.task.wire.flower import filled
from florets.task.wire.records import Layout, MalformedMessage, Mask

Bank = npt.NDArray[np.float64]

_KEY = re.compile(r"([0-9]{1,9})/(.+)")


def is_numbered(key: str) -> bool:
    """Say whether an entry is one model's, and not one that all models share."""
    return _KEY.fullmatch(key) is not None


def num_models(record: Mapping[str, Array]) -> int:
    """Return K: 1 for a plain model without numbered entries; a number that is left out is malformed."""
    numbers = {int(match[1]) for key in record if (match := _KEY.fullmatch(key))}
    count = max(numbers, default=0) + 1
    if numbers and count != len(numbers):
        raise MalformedMessage(f"entries of {len(numbers)} models came, and the largest number is {count - 1}")
    return count


def model(record: Mapping[str, Array], index: int) -> ArrayRecord:
    """Return model `index` under its plain names, shared layers included; arrays are not copied."""
    prefix = f"{index}/"
    found = {
        key.removeprefix(prefix): array
        for key, array in record.items()
        if key.startswith(prefix) or not _KEY.fullmatch(key)
    }
    if index > 0:
        # In the record all shared layers stand before this model's own, wherever they are in the model.
        order = {key.removeprefix("0/"): place for place, key in enumerate(record)}
        found = {name: found[name] for name in sorted(found, key=lambda name: order.get(name, len(order)))}
    return filled(ArrayRecord(), found)


def models(record: Mapping[str, Array]) -> Iterator[ArrayRecord]:
    """Yield the K models in order."""
    for index in range(num_models(record)):
        yield model(record, index)


def pack(bank: Bank, layout: Layout, shared: Mask | None = None) -> ArrayRecord:
    """Pack a bank (K, R); entries wholly inside the mask `shared` (R,) are taken from model 0 and sent once."""
    arrays: dict[str, Array] = {}
    for index, vector in enumerate(bank):
        for entry, array in zip(layout.entries, layout.arrays(vector).values(), strict=True):
            is_shared = shared is not None and bool(shared[entry.place].all()) and entry.size > 0
            if not is_shared:
                arrays[f"{index}/{entry.name}"] = array
            elif index == 0:
                arrays[entry.name] = array
    return filled(ArrayRecord(), arrays)


def unpack(record: Mapping[str, Array]) -> tuple[Bank, Layout]:
    """Return the bank (K, R) in float64 and the models' common layout."""
    # Entry order is the first model's; shared layers stand where packing put them.
    layout = Layout.of(model(record, 0))
    return np.stack([layout.flatten(arrays) for arrays in models(record)]), layout
