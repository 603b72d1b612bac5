"""Code of a run's author: the files behind the import paths that the run names, and which of them have changed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from florets.conf.schema import Config
from florets.reports.folder import make_inside, whole_file, write_whole
from florets.strategies import STRATEGIES
from florets.strategies.base.report import named
from florets.strategies.registry import find_strategy, strategy_class
from florets.task import given
from florets.task.edited_modules import note
from florets.task.fingerprint import file_hashes

CODE = "code.json"
"""File in a run's folder with the hashes of its author's code as the run began; runs of built-in code have none."""

_SEVERAL = "several versions"
_MOST_NAMED = 5

Hashes = Mapping[str, str]
"""Hash of each file, by its name from the package or module on."""


def code_on_disk(config: Config) -> dict[str, str]:
    """Return the hashes of its author's files that a run of this configuration would import now."""
    return file_hashes(paths_of(config))


def look_for_given(folder: Path) -> None:
    """Let objects that were given in Python be read from a run's folder, whose author is trusted."""
    given.look_in(folder / given.FOLDER)


def paths_of(config: Config) -> tuple[str, ...]:
    """Return the import paths that a configuration names, those of its strategy's client handlers among them."""
    task = config.task
    named = (task.data, task.partition, task.model, task.loss, config.measure)
    paths = {name for name in named if ":" in name}
    strategy = find_strategy(config.strategy.name)
    if strategy.id not in STRATEGIES:
        paths |= {strategy.path, *strategy_class(strategy.id).client_handlers}
    return tuple(sorted(paths))


def record_code(folder: Path, config: Config, goes_on: bool) -> str:
    """Leave in a run's folder the code that it runs: objects given in Python, and the hashes of files.

    Return a warning where a run that `goes_on` from a checkpoint began with other code. What has changed stays marked
    in the record: the run is of several versions then, and not taken for one of either.
    """
    paths = paths_of(config)
    if not paths:
        return ""
    # In a process that goes on to run others, they may be edited from now on.
    note(paths)
    for name, data in given.files_of(paths).items():
        make_inside(folder / given.FOLDER)
        with whole_file(folder / given.FOLDER / f"{name}{given.SUFFIX}", "wb") as file:
            file.write(data)
    now = code_on_disk(config)
    then = recorded_code(folder) if goes_on else now
    # A run that began without a record goes on without one.
    if not now or then is None:
        return ""
    changed = changed_files(then, now)
    write_whole(folder / CODE, json.dumps(now | dict.fromkeys(changed, _SEVERAL), indent=1) + "\n")
    return f"the run's code has changed since it began: {changed_words(changed)}" if changed else ""


def recorded_code(folder: Path) -> Any:
    """Return the hashes that a run's folder holds; None without such a file, an empty mapping of a damaged one."""
    path = folder / CODE
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def changed_files(then: Any, now: Hashes) -> list[str]:
    """Return the names of the files that are new, gone or different; none where the record `then` says nothing."""
    if then is None:
        return []
    before: Mapping[str, Any] = then if isinstance(then, Mapping) else {}
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def changed_words(files: Sequence[str]) -> str:
    """Return the names of changed files for a line of text, the first few of many."""
    # A record is a file like any other: a name in it may hold what a terminal would obey.
    return named([name if name.isprintable() else repr(name) for name in files], _MOST_NAMED)
