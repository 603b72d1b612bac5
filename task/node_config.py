"""The node config of a node: the keys that its owner may write, and the caps."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from florets.task.consent import ALLOW
from florets.task.data.tables.declaration import SITE_KEYS, read_toml
from florets.task.wire import kinds
from florets.task.wire.leaving import STATISTICS, named


@dataclass(frozen=True)
class Cap:
    """One cap: its key in the node config, its default, and what it counts."""

    key: str
    most: int
    what: str


EPOCHS = Cap("max-epochs", 10_000, "passes over its data in one message")
STEPS = Cap("max-steps", 1_000_000, "steps of local training, or losses of them, in one message")
BATCH = Cap("max-batch", 1_000_000, "samples in a batch or fold")
MODELS = Cap("max-models", 10_000, "models in one message")
PARAMETERS = Cap("max-parameters", 500_000_000, "parameters of a model")
DIMENSIONS = Cap(
    "max-dimensions",
    4_096,
    "folds, clusters of K-means, dimensions of a projection, layers, or pixels in height and width of an image",
)
COLUMNS = Cap("max-columns", 100_000, "columns, tokens of a text, classes, clients, or names in a list")
OPTION = Cap("max-option", 1_000_000, "as any other number in the options of a built-in function")
TASK = Cap("max-task-length", 4_000_000, "characters of the task's description")
SECONDS = Cap("max-seconds", 1_000_000, "seconds of work on one message")

ALL_CAPS = (*(EPOCHS, STEPS, BATCH, MODELS, PARAMETERS, DIMENSIONS, COLUMNS, OPTION, TASK, SECONDS),)

DATA_DIR, CLIENT_ID = "data-dir", "client-id"
PARTITION_ID, NUM_PARTITIONS = "partition-id", "num-partitions"
ANSWERS, LEAST_RECORDS, MOST_EPSILON = "answers", "min-records", "max-epsilon"
POLICY_KEYS = (kinds.NEVER_SEND, ANSWERS, LEAST_RECORDS, MOST_EPSILON)
"""Keys of the owner's policy (`florets.client_app.policy`)."""
LOG_FOLDER = "log-folder"
"""Key of the node config: folder of the node's log of messages."""
NODE_KEYS = (
    *(DATA_DIR, CLIENT_ID, ALLOW, kinds.DEVICE, kinds.CLUSTER, LOG_FOLDER, kinds.SHARE_STATISTICS),
    *POLICY_KEYS,
    *(cap.key for cap in ALL_CAPS),
)
"""Keys that the owner of a node may write into its node config."""
_SET_BY_ENGINES = (PARTITION_ID, NUM_PARTITIONS, kinds.ROWS_OF, kinds.ONE_PROCESS)


def flag(node_config: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """Return a setting of a node config that is true or false, in quotes or not; else raise ValueError."""
    value = node_config.get(key, default)
    if not isinstance(value, bool) and value not in ("true", "false"):
        raise ValueError(f"this node's config has {key}={value!r}, which must be true or false; write {key}=true")
    return value in (True, "true")


def shares_statistics(node_config: Mapping[str, Any]) -> bool:
    """Return whether a node sends sums of its tests and figures of its columns: unless its config says false."""
    return flag(node_config, kinds.SHARE_STATISTICS, True) and not forbids(node_config, STATISTICS)


def forbids(node_config: Mapping[str, Any], what: str) -> bool:
    """Return whether a node never sends what has this name, see `florets.task.wire.leaving`."""
    return kinds.NEVER_SEND in node_config and what in named(node_config[kinds.NEVER_SEND])


def answered_by(node_config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the patterns of messages that a node answers; none: all."""
    return tuple(filter(None, (part.strip() for part in str(node_config.get(ANSWERS, "")).split(","))))


def check_node_config(node_config: Mapping[str, Any]) -> None:
    """Raise ValueError for a slip of a key in a node config, or a flag that is neither true nor false; see `flag`.

    Keys of other apps pass; but what reads like a limit must be one: its owner relies on it.
    """
    for key in node_config:
        if key in NODE_KEYS or key in _SET_BY_ENGINES:
            continue
        name = key.replace("_", "-").lower()
        cutoff = 0.0 if name.startswith(("max-", "min-", "share-")) else 0.8
        if near := difflib.get_close_matches(name, NODE_KEYS, n=1, cutoff=cutoff):
            raise ValueError(f"this node's config has {key}, which is no key; did you mean {near[0]}?")
    flag(node_config, kinds.SHARE_STATISTICS)


def folders_config(file: Path) -> dict[str, Any]:
    """Return the node config in a data folder's file, without what it says of tables; empty where there is none."""
    values, known = read_toml(file), [*SITE_KEYS, *NODE_KEYS]
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name.replace("_", "-").lower(), known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"{file.name}: {name}: there is no such key.{hint} There are {', '.join(known)}.")
        if name in NODE_KEYS and isinstance(value, dict | list):
            raise ValueError(f'{file.name}: {name}: must be one text, such as {name} = "<first>, <second>".')
    return {name: value for name, value in values.items() if name not in SITE_KEYS}
