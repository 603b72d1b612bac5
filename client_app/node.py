"""A node's context and a message's settings, read: whose the data are, which client it is, where it computes."""

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, ConfigRecordValues, Context, RecordDict

from florets.task.consent import EVERYTHING, Consent
from florets.task.data.tables.declaration import site_file
from florets.task.device import find_device
from florets.task.node_config import CLIENT_ID, DATA_DIR, NUM_PARTITIONS, PARTITION_ID, folders_config
from florets.task.randomness import client_number
from florets.task.wire import kinds

Config = Mapping[str, ConfigRecordValues]
"""A message's settings."""

_NODES_PROCESS = "flwr-clientapp"


def is_simulated(context: Context) -> bool:
    """Return whether this is a node of a simulation; a SuperNode's is not, whatever its node config says."""
    return NUM_PARTITIONS in context.node_config and not has_process_of_its_own()


def has_process_of_its_own() -> bool:
    """Return whether this process is a deployed node's, started for one message."""
    # A simulation's process serves many clients and is not replaced, and that of the in-process engine is the user's.
    return _is_nodes(sys.argv[0])


@lru_cache(maxsize=2)
def _is_nodes(program: str) -> bool:
    return os.path.splitext(os.path.basename(program))[0] == _NODES_PROCESS


def with_folders_config(context: Context) -> Context:
    """Return a real node's context with what its data folder's file says; in one process the engine has read it."""
    node = context.node_config
    if DATA_DIR not in node:
        return context
    file = site_file(Path(str(node[DATA_DIR])))
    stated = {key: value for key, value in folders_config(file).items() if key not in (DATA_DIR, CLIENT_ID)}
    for key, value in stated.items():
        if node.get(key, value) != value:
            raise ValueError(
                f"{key} has one value in the SuperNode's --node-config and another in {file.name} of the data; keep "
                "one of them"
            )
    return with_node_config(context, {**stated, **node})


def with_node_config(context: Context, config: dict[str, Any]) -> Context:
    """Return a context with another node config."""
    return Context(context.run_id, context.node_id, config, context.state, context.run_config, context.series_id)


def has_owner(context: Context) -> bool:
    """Return whether this node holds somebody's own data, whose say counts: its folder is in the node config."""
    return DATA_DIR in context.node_config or not is_simulated(context)


def consent_of(context: Context) -> Consent:
    """Return what code a run may name here."""
    return Consent.of(context.node_config) if has_owner(context) else EVERYTHING


def partition_id(context: Context) -> int:
    """Return the number of this node's part of the data."""
    number = context.node_config.get(PARTITION_ID)
    if not isinstance(number, int):
        raise ValueError("this node has no partition-id in its node config")
    return number


def num_partitions(context: Context) -> int:
    """Return the number of simulated nodes, 0 on a node that is not simulated."""
    return int(context.node_config[NUM_PARTITIONS]) if is_simulated(context) else 0


def client_key(context: Context) -> str:
    """Return the name under which this node is the same client again after a restart."""
    if CLIENT_ID in context.node_config:
        return str(context.node_config[CLIENT_ID])
    if PARTITION_ID in context.node_config:
        digits = len(str(max(num_partitions(context) - 1, 0)))
        return str(context.node_config[PARTITION_ID]).zfill(digits)
    return kinds.NO_KEY


def number_of(config: Config, context: Context) -> int:
    """Return the number that stands for this client in its draws, see `florets.task.randomness.client_number`."""
    # The server knows the client's registered name, the node may not; other strategies than ours send no number.
    key, name = client_key(context), kinds.CLIENT_NUMBER
    if key == kinds.NO_KEY and name not in config:
        name = kinds.UNNAMED_NUMBER
    return int(number(config, name)) if name in config else client_number(key)


def number(config: Config, key: str, default: float | None = None) -> float:
    """Return a number among a message's settings; raise ValueError where there is none and no default."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the message's config has {key}={value!r}, not a number")
    return value


def device_of(config: Config, context: Context) -> torch.device:
    """Return where this node computes: its own setting, else the message's, else the CPU."""
    return find_device(str(context.node_config.get(kinds.DEVICE, config.get(kinds.DEVICE, "cpu"))))


def config_of(content: RecordDict) -> Config:
    """Return a message's settings; raise ValueError where it has none."""
    config = content.get(kinds.CONFIG)
    if not isinstance(config, ConfigRecord):
        raise ValueError(f"the message has no {kinds.CONFIG!r}")
    # A plain dictionary, which is read in a tenth of the time.
    return dict(config.items())
