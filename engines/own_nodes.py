"""A dry run of a deployment: in one process, each folder in `data_dir` is a node with data of its own."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from florets.conf.consent import TRACKER, import_paths
from florets.conf.problems import ConfigError
from florets.conf.run_config import task_spec
from florets.conf.schema import Config, as_plain
from florets.strategies import STRATEGIES
from florets.strategies.registry import find_strategy, strategy_class
from florets.task.consent import ALLOW
from florets.task.data.tables.declaration import client_folders, is_table, name_of, site_file
from florets.task.node_config import CLIENT_ID, DATA_DIR, folders_config
from florets.task.spec import DECLARED
from florets.task.wire import kinds
from florets.task.wire.replies import key_problem

log = logging.getLogger("florets")


def own_nodes(config: Config) -> list[dict[str, Any]]:
    """Return the node config of every client whose data lie in `data_dir`, by name; none where clients are simulated.

    `data_dir` holds a folder for each client, or a table for each; with `task.table.owner` it is one table, whose
    rows are dealt out by that column. A folder's or table's name is its client's; hidden ones (.git) are skipped. A
    file ``node.toml`` in the folder (with tables: of the table's name) is read as the SuperNode would read it
    (`--node-config`), except for `data-dir`, for `allow`, since on one's own machine the command line is consent, and
    for what concerns tables (`florets.task.data.tables.declaration.Site`).
    """
    if config.task.partition != "own":
        return []
    root = Path(config.data_dir)
    if config.task.table.owner:
        return _owners(root, config)
    folders = client_folders(root) if root.is_dir() else []
    if not folders:
        raise ConfigError(
            f"data_dir={root}: must be a folder that holds a folder, or a table, for each client; or one table, with "
            "the column that says whose each row is, owner=<column>."
        )
    ours = {ALLOW: ",".join(_named(config))}
    nodes = [
        {
            CLIENT_ID: folder.name if folder.is_dir() else name_of(folder),
            **stated(site_file(folder)),
            **ours,
            DATA_DIR: str(folder),
        }
        for folder in folders
    ]
    if problems := list(_name_problems(root, folders, [str(node[CLIENT_ID]) for node in nodes])):
        raise ConfigError(problems)
    return nodes


def _owners(root: Path, config: Config) -> list[dict[str, Any]]:
    """Return a node for each owner of the rows of one table."""
    from florets.task.data.own import find_files
    from florets.task.data.tables.declaration import Declaration, read_site
    from florets.task.data.tables.names import listed
    from florets.task.data.tables.read import read_table

    owner = config.task.table.owner
    if root.is_dir() and len(sites := client_folders(root)) > 1:
        raise ConfigError(
            f"task.table.owner={owner}: is for one table of all clients, and data_dir={root} holds {len(sites)} "
            "folders or tables, one for each client: leave owner out, or name the one table."
        )
    try:
        path = find_files(root).paths[0]
        if not is_table(path):
            raise ValueError(f"{path.name} is no table.")
        declared = Declaration.of(task_spec(config)["table"].get(DECLARED, {}))
        owner, frame = declared.owner, read_table(path, declared, read_site(root)).frame
        if owner not in frame.columns:
            raise ValueError(f"{path.name} has no column {owner!r}; its columns are {listed(list(frame.columns))}.")
        if empty := int(frame[owner].isna().sum()):
            log.warning("%s: %d records name no %s and are left out", path.name, empty, owner)
    except ValueError as error:
        raise ConfigError(f"task.table.owner={owner}: {error}") from None
    ours = {**stated(site_file(root)), ALLOW: ",".join(_named(config))}
    return [
        {**ours, CLIENT_ID: name, DATA_DIR: str(root), kinds.ROWS_OF: name}
        for name in sorted(map(str, frame[owner].dropna().unique()))
    ]


def _named(config: Config) -> list[str]:
    """Return the modules of the code that a run names by import paths, and of its strategy's handlers."""
    # A tracker is the server's: no node imports it.
    paths = [path for key, path in import_paths(as_plain(config)).items() if key != TRACKER]
    if find_strategy(config.strategy.name).id not in STRATEGIES:
        paths += strategy_class(config.strategy.name).client_handlers
    return sorted({path.partition(":")[0] for path in paths})


def _name_problems(root: Path, folders: Sequence[Path], keys: Sequence[str]) -> Iterator[str]:
    owners: dict[str, str] = {}
    for folder, key in zip(folders, keys, strict=True):
        remedy = f"Rename it, or write client-id into its {site_file(folder).name}."
        if problem := key_problem(key):
            yield f"data_dir={root}: the client's name {key!a} of {folder.name!a} {problem}. {remedy}"
        if (other := owners.setdefault(key, folder.name)) != folder.name:
            yield f"data_dir={root}: {other!a} and {folder.name!a} are both client {key!a}. {remedy}"


def check_device(config: Config, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError for a device that this machine does not have; a node's own setting overrides the run's."""
    from florets.task.device import find_device

    names = {str(node.get("device", config.device)) for node in nodes or [{}]}
    for name in sorted(names):
        try:
            find_device(name)
        except ValueError as error:
            raise ConfigError(f"{error}.") from None


def stated(file: Path) -> dict[str, Any]:
    """Return the node config in a node's file; ConfigError for a key that is neither one of it nor of a table."""
    try:
        return folders_config(file)
    except ValueError as error:
        raise ConfigError([f"{file.parent}/{line}" for line in str(error).splitlines()]) from None
