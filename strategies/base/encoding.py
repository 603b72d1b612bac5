"""A strategy's state as JSON and named arrays, and back: what a checkpoint holds.

Nothing is pickled. The only classes built again are dataclasses of this project and, if loaded already, of the
package that the run's own strategy comes from.
"""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from florets.strategies.base.models import Models

Arrays = dict[str, npt.NDArray[Any]]

_PLAIN = (type(None), bool, int, float, str)

_SMALL = 1024
"""Largest array in bytes that is written together with others."""

_OURS = ("florets.strategies.", "florets.zoo.", "florets.task.")


def encode(value: object, arrays: Arrays, path: str = "state") -> Any:
    """Return `value` as plain JSON data; the arrays within it, from this `path`, are added to `arrays`."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if type(value) is list:
        return _encode_all(value, arrays, path)
    if type(value) is tuple:
        return {"tuple": _encode_all(value, arrays, path)}
    if type(value) in (set, frozenset):
        # Sorted, so that equal states give equal files.
        return {type(value).__name__: _encode_all(sorted(value, key=repr), arrays, path)}  # type: ignore[call-overload]
    if type(value) is dict:
        if (rows := _as_rows(value)) is not None:
            return {"rows": [list(value), _add(rows, arrays, path)]}
        return {"dict": [[encode(k, arrays, path), encode(v, arrays, f"{path}/{k}")] for k, v in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": _add(value, arrays, path)}
    if isinstance(value, Models):
        names = encode_record(value.record, arrays, path)
        return {"models": names, "shared_layers": list(value.shared_layers), "untrained": list(value.untrained)}
    if isinstance(value, ArrayRecord):
        return {"record": encode_record(value, arrays, path)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name, fields = _fields(type(value))
        return {"object": name, "fields": {f: encode(getattr(value, f), arrays, f"{path}/{f}") for f in fields}}
    raise TypeError(
        f"{path} is a {type(value).__name__}, which a checkpoint cannot hold; keep plain values, arrays, models or "
        f"dataclasses in the strategy's State, and rebuild everything else"
    )


def decode(data: Any, arrays: Mapping[str, npt.NDArray[Any]], strategy: type[Any] | None = None) -> Any:
    """Return what `encode` was given; it builds the state of `strategy` and dataclasses of its top-level package."""
    if isinstance(data, list):
        return [decode(item, arrays, strategy) for item in data]
    if not isinstance(data, dict):
        return data
    match data:
        case {"tuple": items}:
            return tuple(decode(items, arrays, strategy))
        case {"set": items}:
            return set(decode(items, arrays, strategy))
        case {"frozenset": items}:
            return frozenset(decode(items, arrays, strategy))
        case {"dict": items}:
            return {decode(key, arrays, strategy): decode(value, arrays, strategy) for key, value in items}
        case {"rows": [keys, name]}:
            return {key: row.copy() for key, row in zip(keys, _find(name, arrays), strict=True)}
        case {"array": name}:
            return _find(name, arrays)
        case {"models": names, "shared_layers": prefixes, "untrained": untrained}:
            return Models(decode_record(names, arrays), tuple(prefixes), tuple(untrained))
        case {"record": names}:
            return decode_record(names, arrays)
        case {"object": name, "fields": fields}:
            return _class(name, strategy)(**{key: decode(value, arrays, strategy) for key, value in fields.items()})
    raise ValueError(f"a state holds no {sorted(data)}")


def encode_record(record: Mapping[str, Array], arrays: Arrays, path: str) -> list[list[str]]:
    """Add a record's arrays to `arrays`; return their names, in the record's order, which is the models' layout."""
    return [[name, _add(array.numpy(), arrays, f"{path}/{name}")] for name, array in record.items()]


def decode_record(names: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    """Return the record that `encode_record` took apart."""
    return ArrayRecord({name: Array(_find(place, arrays)) for name, place in names})


@cache
def _fields(cls: type[Any]) -> tuple[str, tuple[str, ...]]:
    """Return under which name a dataclass is looked up, and its fields that its constructor takes."""
    return f"{cls.__module__}:{cls.__qualname__}", tuple(f.name for f in dataclasses.fields(cls) if f.init)


def _encode_all(items: Any, arrays: Arrays, path: str) -> list[Any]:
    return [encode(item, arrays, f"{path}/{index}") for index, item in enumerate(items)]


def _as_rows(values: dict[Any, Any]) -> npt.NDArray[Any] | None:
    """Return small arrays of like shapes as one, such as a vector of each client; None for all else."""
    if len(values) < 2 or not all(type(value) is np.ndarray for value in values.values()):
        return None
    first = next(iter(values.values()))
    alike = len({(array.dtype, array.shape) for array in values.values()}) == 1
    is_small = first.dtype.kind in "biuf" and first.ndim > 0 and first.nbytes <= _SMALL
    return np.stack(list(values.values())) if alike and is_small and all(type(k) in _PLAIN for k in values) else None


def _add(values: npt.NDArray[Any], arrays: Arrays, path: str) -> str:
    # The number keeps apart paths that client keys with slashes make equal.
    name = f"{len(arrays)} {path}"
    arrays[name] = values
    return name


def _find(name: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    return arrays[name]


def _module(name: str) -> ModuleType | None:
    """Return a module that is imported, or one of this project: a personal method's may not be imported yet."""
    if name in sys.modules or not name.startswith(_OURS):
        return sys.modules.get(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _class(name: str, strategy: type[Any] | None) -> Any:
    state = getattr(strategy, "State", None)
    # That of a class which is no module's, as one of a notebook, is looked for nowhere else.
    if isinstance(state, type) and dataclasses.is_dataclass(state) and _fields(state)[0] == name:
        return state
    module, _, qualname = str(name).partition(":")
    home = "" if strategy is None else strategy.__module__
    own = "" if home.startswith("florets.") else home.partition(".")[0]

    def may(place: str) -> bool:
        return place.startswith(_OURS) or bool(own and (place == own or place.startswith(f"{own}.")))

    found: Any = _module(module) if may(module) else None
    for part in qualname.split("."):
        found = vars(found).get(part) if found is not None and hasattr(found, "__dict__") else None
    # What those modules import from elsewhere is not theirs.
    if not isinstance(found, type) or not may(found.__module__) or not dataclasses.is_dataclass(found):
        raise ValueError(f"{name!r} is not a dataclass of this project or of the strategy's package")
    return found
