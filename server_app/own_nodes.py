"""A dry run of a deployment: in one process, each folder in `data_dir` is a node with data of its own."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.task.wire.introduction import key_problem

NODE_FILE = "node.toml"


def own_nodes(config: Config) -> list[dict[str, Any]]:
    """Return the node config of every folder in `data_dir`, sorted by name; none where clients are simulated.

    A folder's name is its client's. A file ``node.toml`` in it is read as the SuperNode would read it
    (`--node-config`), except for `data-dir`. Folders that begin with a dot, such as ``.git``, are nobody's.

    Raises
    ------
    ConfigError
        If there are no folders, a client's name cannot be one or is another client's as well, or a node's file is no
        TOML.
    """
    if config.task.partition != "own":
        return []
    root = Path(config.data_dir)
    if not root.is_dir():
        raise ConfigError(
            [f"data_dir={root}: there is no such folder; with task.partition=own it holds one for each client."]
        )
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise ConfigError(
            [f"data_dir={root}: holds no folders; with task.partition=own it must hold one for each client."]
        )
    nodes = [{"client-id": folder.name, **_stated(folder / NODE_FILE), "data-dir": str(folder)} for folder in folders]
    if problems := list(_name_problems(root, folders, [str(node["client-id"]) for node in nodes])):
        raise ConfigError(problems)
    return nodes


def _name_problems(root: Path, folders: Sequence[Path], keys: Sequence[str]) -> Iterator[str]:
    owners: dict[str, str] = {}
    for folder, key in zip(folders, keys, strict=True):
        remedy = f"Rename the folder, or write client-id into its {NODE_FILE}."
        if problem := key_problem(key):
            yield f"data_dir={root}: the client's name {key!a} of folder {folder.name!a} {problem}. {remedy}"
        if (other := owners.setdefault(key, folder.name)) != folder.name:
            yield f"data_dir={root}: folders {other!a} and {folder.name!a} are both client {key!a}. {remedy}"


def check_device(config: Config, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a device that this machine does not have; a node's own setting wins over the run's.

    Raises
    ------
    ConfigError
        If a node would compute there.
    """
    from florets.task.device import find_device

    names = {str(node.get("device", config.device)) for node in nodes or [{}]}
    for name in sorted(names):
        try:
            find_device(name)
        except ValueError as error:
            raise ConfigError([f"{error}."]) from error


def _stated(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: is not TOML ({error})."]) from error
