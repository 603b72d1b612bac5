"""Nested mappings in layers: reading their dotted keys, laying one over another."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from florets.conf.overrides import Given
from florets.conf.schema import OPTION_KEYS

_TASK_PARTS = ("data", "partition", "model")


def is_option(key: str) -> bool:
    """Return whether a dotted key is one of the free option mappings, or an entry of one."""
    return any(key == option or key.startswith(f"{option}.") for option in OPTION_KEYS)


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested mappings with their values; option mappings count as one value."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and not is_option(key):
            yield from dotted(value, f"{key}.")
        else:
            yield key, value


def whole_options(given: Sequence[Given]) -> list[str]:
    """Return the names, within `task`, of the option mappings that were given as a whole."""
    return [entry.key.removeprefix("task.") for entry in given if entry.key in OPTION_KEYS]


def nest(given: Sequence[Given]) -> dict[str, Any]:
    """Return dotted keys as nested mappings, a whole mapping before single entries of it."""
    nested: dict[str, Any] = {}
    for entry in sorted(given, key=lambda entry: entry.key.count(".")):
        *parents, last = entry.key.split(".")
        node = nested
        for parent in parents:
            inner = node.get(parent)
            node[parent] = dict(inner) if isinstance(inner, Mapping) else {}
            node = node[parent]
        node[last] = entry.value
    return nested


def overlay(values: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Lay a higher layer over `values`, in place.

    When it names another data set, partition or model, the options of the old one go: they belong to its function.
    """
    task, over = values.setdefault("task", {}), layer.get("task", {})
    for part in _TASK_PARTS:
        if part in over and over[part] != task.get(part):
            task.pop(f"{part}_options", None)
    for name, value in layer.items():
        _merge(values, name, value)


def _merge(node: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, Mapping) and isinstance(node.get(name), dict):
        for inner, item in value.items():
            _merge(node[name], inner, item)
    else:
        node[name] = value
