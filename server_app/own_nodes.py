"""A dry run of a deployment: in one process, each folder in `data_dir` is a node with data of its own."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from florets.conf.consent import import_paths
from florets.conf.problems import ConfigError
from florets.conf.schema import Config, as_plain
from florets.strategies import STRATEGIES
from florets.strategies.registry import find_strategy, strategy_class
from florets.task.consent import ALLOW

NODE_FILE = "node.toml"


def own_nodes(config: Config) -> list[dict[str, Any]]:
    """Return the node config of every folder in `data_dir`, sorted by name; none where clients are simulated.

    A folder's name is its client's; hidden folders (.git) are skipped. A file ``node.toml`` in it is read as the
    SuperNode would read it (`--node-config`), except for `data-dir` and `allow`: on one's own machine the command
    line is consent.

    Raises
    ------
    ConfigError
        If there are no folders, one has a name that is no text, or a node's file is no TOML.
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
    if unreadable := [folder.name for folder in folders if not folder.name.isprintable()]:
        raise ConfigError(
            [f"data_dir={root}: {unreadable[0]!a} is no name for a client; give the folder one of printable text."]
        )
    ours = {ALLOW: ",".join(_named(config))}
    return [
        {"client-id": folder.name, **_stated(folder / NODE_FILE), **ours, "data-dir": str(folder)}
        for folder in folders
    ]


def _named(config: Config) -> list[str]:
    """Return the modules of the code that a run names by import paths, and of its strategy's handlers."""
    paths = list(import_paths(as_plain(config)).values())
    if find_strategy(config.strategy.name).id not in STRATEGIES:
        paths += strategy_class(config.strategy.name).client_handlers
    return sorted({path.partition(":")[0] for path in paths})


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
