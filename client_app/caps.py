"""Caps: the most that a node with somebody's own data does for a server; its owner can lower or raise each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

from flwr.app import ArrayRecord, RecordDict

from florets.task import node_config as node_keys
from florets.task.consent import Refused
from florets.task.spec import PREPARED, TaskSpec
from florets.task.training.settings import CAPS
from florets.task.wire import kinds

SETTINGS: Mapping[str, node_keys.Cap] = {
    **{key: next(cap for cap in node_keys.ALL_CAPS if cap.key == name) for key, name in CAPS.items()},
    kinds.FINE_TUNE_EPOCHS: node_keys.EPOCHS,
    **dict.fromkeys((kinds.FOLD_STEPS, kinds.STEP_LOSSES), node_keys.STEPS),
    **dict.fromkeys((kinds.GRADIENT_BATCH, kinds.LOSS_BATCH, kinds.FOLD_SIZE, kinds.MIX_BATCH), node_keys.BATCH),
    # A row that is sent whole has as many entries as the model.
    kinds.FOLD_WIDTH: node_keys.PARAMETERS,
    **dict.fromkeys((kinds.NUM_FOLDS, kinds.LOCAL_CLUSTERS, kinds.DIMENSIONS, kinds.VECTORS), node_keys.DIMENSIONS),
    kinds.CLASSES: node_keys.COLUMNS,
}
"""Caps of the numbers among a message's settings, by key."""

LISTS: Mapping[str, node_keys.Cap] = {
    kinds.SHARES: node_keys.MODELS,
    **dict.fromkeys(
        (kinds.UNTRAINED, kinds.FROZEN, kinds.SENT_LAYERS, kinds.PROFILE_LAYERS, kinds.HEAD, kinds.HANDLERS),
        node_keys.COLUMNS,
    ),
}
"""Caps of the lengths of lists among a message's settings, by key."""

_OPTIONS: Mapping[str, tuple[Mapping[str, node_keys.Cap], node_keys.Cap]] = {
    "data": (
        {"image_size": node_keys.DIMENSIONS, "words": node_keys.COLUMNS, "length": node_keys.COLUMNS},
        node_keys.COLUMNS,
    ),
    "partition": ({"num_outputs": node_keys.COLUMNS}, node_keys.COLUMNS),
    "model": ({}, node_keys.DIMENSIONS),
}
"""Of the options of a task's parts: caps of numbers by key, and of the lengths of lists."""


class Limits:
    """The caps of one node: the defaults, or what its owner has set in `node_config`."""

    def __init__(self, node_config: Mapping[str, Any]) -> None:
        self._node_config = node_config

    def most(self, cap: node_keys.Cap) -> float:
        """Return the most of a cap here; ValueError if the node config has something else than a number above 0."""
        value = self._node_config.get(cap.key, cap.most)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"this node's config has {cap.key}={value!r}, which must be a number above 0")
        return value

    def hold(self, cap: node_keys.Cap, name: str, value: object) -> None:
        """Raise Refused for a number above the cap, infinite or NaN; what is no number is left to its reader."""
        if not isinstance(value, int | float) or value <= (most := self.most(cap)):
            return
        raise Refused(
            f"{name}={value}: this node does at most {most:,} ({cap.what}); ask for less, or let its owner set "
            f"{cap.key} in the node config"
        )

    def check_message(self, content: RecordDict, config: Mapping[str, Any]) -> None:
        """Refuse a message that asks for too much, or holds too many or too large models; see `hold`."""
        for key in config.keys() & SETTINGS.keys():
            self.hold(SETTINGS[key], key, config[key])
        for key in config.keys() & LISTS.keys():
            if isinstance(config[key], list):
                self.hold(LISTS[key], f"length of {key}", len(config[key]))
        for name, record in content.items():
            if isinstance(record, ArrayRecord):
                count, size = _models_in(name, record)
                self.hold(node_keys.MODELS, f"models in {name!r}", count)
                self.hold(node_keys.PARAMETERS, f"parameters of a model in {name!r}", size)

    def check_task(self, spec: TaskSpec) -> None:
        """Refuse a task of too large numbers, see `hold`; a function that the owner allowed takes what it likes."""
        for name in ("num_clients", "num_clusters"):
            self.hold(node_keys.COLUMNS, name, getattr(spec, name))
        self.hold(node_keys.COLUMNS, "length of task.head_layers", len(spec.head_layers))
        self.hold(node_keys.DIMENSIONS, "task.adapter_options.rank", spec.adapter.get("rank", 0))
        prepared = spec.table.get(PREPARED, {})
        if isinstance(prepared, Mapping):
            inputs = [*prepared.get("numeric", ()), *_categories(prepared.get("categorical", ()))]
            self.hold(node_keys.COLUMNS, "inputs of task.table", len(inputs))
        for part, (numbers, lists) in _OPTIONS.items():
            if ":" in getattr(spec, part):
                continue
            options = dict(getattr(spec, f"{part}_options"))
            if part == "data" and isinstance(scale := options.pop("scale", {}), Mapping):
                # Figures of the sites' data may be as large as these.
                for key, value in _leaves(scale):
                    self.hold(node_keys.COLUMNS, f"length of {key}", len(value) if isinstance(value, list) else 0)
            for key, value in _leaves(options):
                name = f"task.{part}_options.{key}"
                if isinstance(value, list):
                    self.hold(lists, f"length of {name}", len(value))
                else:
                    self.hold(numbers.get(key, node_keys.OPTION), name, value)


def _categories(columns: Iterable[Any]) -> Iterator[Any]:
    """Yield every category of columns of words; what is malformed its reader refuses."""
    for column in columns:
        found = column.get("categories", ()) if isinstance(column, Mapping) else ()
        yield from found if isinstance(found, list) else ()


def _leaves(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every number, text and list in nested options with the key that it stands under."""
    for key, value in options.items():
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Mapping):
                yield from _leaves(one)
            else:
                yield key, one
                waiting += one if isinstance(one, list) else []


def _models_in(name: str, record: ArrayRecord) -> tuple[int, int]:
    """Return how many models an array record holds, and how many numbers the largest of them has."""
    sizes, shared = Counter[str](), 0
    if name in (kinds.ESTIMATES, kinds.BASES):
        return _anchors_in({key: array.shape for key, array in record.items()})
    for key, array in record.items():
        index, slash, _ = key.partition("/")
        if slash and index.isdecimal():
            sizes[index] += prod(array.shape)
        else:
            shared += prod(array.shape)
    return max(len(sizes), 1), shared + max(sizes.values(), default=0)


def _anchors_in(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """Return how many vectors there are in the estimates (A, R), or bases (A, R, K) or (R, K), of anchors, and R."""
    count = size = 0
    for key, shape in shapes.items():
        length = shape[min(len(shape) - 1, 0 if key == kinds.BASIS else 1)] if shape else 1
        count, size = max(count, prod(shape) // max(length, 1)), max(size, length)
    return count, size
