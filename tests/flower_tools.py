"""Flower's private tools that tests call: its reader of run configs, its builder of bundles, its check of an app."""

from pathlib import Path
from typing import Any

from flwr.app import RecordDict
from flwr.cli.app_cmd.publish import _collect_file_paths, _validate_app_name, _validate_description, _validate_files
from flwr.cli.build import build_fab_from_disk, build_fab_from_files
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import collect_files
from flwr.client.mod import secaggplus_mod
from flwr.common.config import get_project_config, parse_config_args
from flwr.common.constant import ErrorCode
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.supercore.fab import Fab
from flwr.supercore.object_ref import load_app, validate
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal

__all__ = [
    "SUPPORTED",
    "ErrorCode",
    "Fab",
    "NodeInfo",
    "RecordDictProto",
    "Run",
    "TaskIdentity",
    "build_fab_from_disk",
    "get_project_config",
    "load_app",
    "on_the_wire",
    "parse_config_args",
    "publish_check",
    "recorddict_from_proto",
    "recorddict_to_proto",
    "secaggplus_mod",
    "start_client_internal",
    "validate",
]

SUPPORTED = ("1.41", "1.42")
"""Minor versions with which all tests have passed, those of pyproject.toml."""


def publish_check(app: Path) -> tuple[list[Path], dict[str, Any]]:
    """Do what `flwr app publish` and the hub do with an app before they take it, without log-in and upload.

    Return its files and what the hub notes of it. A `click.ClickException` or ValueError says what breaks a rule.
    """
    config, warnings = load_and_validate(app / "pyproject.toml", check_module=False)
    assert not warnings
    # Flower looks at the folder's name, which in a clone is whatever its owner took.
    _validate_app_name(config["project"]["name"], "project")
    _validate_description(config["project"].get("description", ""))
    files = _collect_file_paths(app)
    _validate_files(files)
    _, noted = build_fab_from_files(collect_files(app))
    return files, vars(noted)


def on_the_wire(content: RecordDict) -> RecordDict:
    """Return what of a message's content arrives, or of a node's state is read again."""
    return recorddict_from_proto(RecordDictProto.FromString(recorddict_to_proto(content).SerializeToString()))
