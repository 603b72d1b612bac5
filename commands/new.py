"""`florets new` and `florets app`: skeletons of a strategy, a project or an app, each with a README."""

import keyword
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from florets.conf.extras import version
from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.console import say

_TEMPLATES = Path(__file__).parent / "templates"
_KINDS = ("strategy", "project")


def new(kind: str, name: str, /) -> None:
    """Write a skeleton that runs as it is into a new folder <name>, with a test and a README.

    Parameters
    ----------
    kind : {"strategy", "project"}
        strategy: one file with settings, state and round; project: a package of a strategy, a data set with its
        partition and a model, and a preset, that can be installed and is a Flower app as well.
    name : str
        Of the module, such as my_method.
    """
    if kind not in _KINDS:
        raise ConfigError(f"florets new {kind}: the kinds are {', '.join(_KINDS)}.{did_you_mean(kind, _KINDS)}")
    folder = _write(f"florets new {kind}", kind, name, Path.cwd() / name)
    say(f"{folder}: a {kind} that runs as it is; its README.md says how.")


def app(folder: str, /) -> None:
    """Write a Flower app whose code is the installed package into a new folder.

    It is for `flwr run`: on Flower's simulation, and on a federation that is already running, whose server and nodes
    have florets installed. Data functions and strategies of your own go into it and are sent along.

    Parameters
    ----------
    folder : str
        The new folder.
    """
    path = Path(os.path.abspath(folder))  # not resolved: a link is no new folder
    _write("florets app", "app", path.name.replace("-", "_"), path)
    say(f"{path}: an app for `flwr run`; its README.md says how.")


def _write(command: str, kind: str, name: str, folder: Path) -> Path:
    """Write a skeleton with a module of this name into a new folder, and return it; ConfigError names the command."""
    _check(command, name)
    if folder.exists() or folder.is_symlink():
        raise ConfigError(f"{command} {name}: {folder} exists; take another name, or move it away.")
    try:
        for path, text in _files(kind, name):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{command} {name}: {folder} cannot be written ({reason}); name another folder.") from None
    return folder


def _check(command: str, name: str) -> None:
    """Refuse what cannot be the name of a module of the user's own."""
    rule = ""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        rule = "must be a Python module's name of small letters, digits and _, such as my_method"
    elif name.startswith("test_"):
        rule = "must not begin with test_: Flower leaves such modules out of an app"
    elif find_spec(name) is not None and not (Path.cwd() / name).exists():
        rule = "is the name of a module that Python finds already; take another"
    if rule:
        raise ConfigError(f"{command}: name={name} {rule}.")


def _files(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file of a skeleton."""
    own = {path.relative_to(_TEMPLATES).as_posix(): path for path in (_TEMPLATES / kind).rglob("*.md")}
    if kind == "project":
        own["project/NAME/strategy.py.md"] = _TEMPLATES / "strategy" / "NAME.py.md"
    words = {
        "name": name,
        "Class": "".join(part.capitalize() for part in name.split("_")),
        # Flower takes letters, digits and hyphens.
        "app": name.replace("_", "-"),
        "version": version(),
    }
    for path, template in sorted(own.items()):
        text = template.read_text(encoding="utf-8")
        for word, value in words.items():
            text = text.replace(f"{{{{{word}}}}}", value)
        yield path.removeprefix(f"{kind}/").removesuffix(".md").replace("NAME", name), text
