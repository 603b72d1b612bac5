"""Presets: the YAML files of conf/ and of a folder of the user's, read and laid over each other.

A preset's list `defaults` names presets that it builds on, and files of `task/` and `train/`. Layers from below: the
task's file, the optimiser's, the presets built on, the preset. A file holds one preset, named by its path, or several
between `---`, each of which begins with `# florets experiment=<name>`.
"""

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from florets.conf.overrides import overlay
from florets.conf.problems import ConfigError, did_you_mean

CONFIG_DIR = Path(__file__).resolve().parent
OWN_DIR = "FLORETS_CONFIG_DIR"
"""Environment variable that names the user's folder."""

GROUPS = ("experiment", "task", "train")
_PLAIN = {"task": "digits", "train": "adam"}
"""Files of a preset that names no others."""


def choices(group: str) -> list[str]:
    """Return the names that a group offers, sorted: `choices("experiment")` holds `clove/linear`."""
    return sorted(texts(group))


def texts(group: str) -> dict[str, str]:
    """Return the texts of the presets that a group offers, by name."""
    built_in, own = _sources(CONFIG_DIR, group), os.environ.get(OWN_DIR)
    mine = _sources(Path(own), group) if own else {}
    # Which is meant would depend on who reads it.
    if both := sorted(mine.keys() & built_in.keys()):
        raise ConfigError(f"{own}/{group}/{both[0]}.yaml: florets has one of this name; choose another.")
    return built_in | mine


def _sources(folder: Path, group: str) -> dict[str, str]:
    """Return the texts of a folder's presets by name."""
    found: dict[str, str] = {}
    root = str(folder / group)
    # Every composition asks: `Path.rglob` takes four times as long.
    for place, _, files in os.walk(root):
        for file in files:
            if file.endswith(".yaml"):
                path = os.path.join(place, file)
                own_name = path[len(root) + 1 : -len(".yaml")].replace(os.sep, "/")
                found |= _documents(path, os.stat(path).st_mtime_ns, group, own_name)
    return found


@lru_cache(maxsize=256)
def _documents(path: str, _changed: int, group: str, own_name: str) -> dict[str, str]:
    """Return the texts of a file's presets by name."""
    text = Path(path).read_text(encoding="utf-8")
    named = {
        found[1]: one for one in text.split("\n---\n") if (found := re.match(rf"# florets {group}=(\S+)\n", one))
    }
    return named if len(named) > 1 else {own_name: text}


def read_file(group: str, name: str) -> dict[str, Any]:
    """Return what a group's preset holds; raise ConfigError where it cannot be read."""
    try:
        return copy.deepcopy(_read(texts(group)[name]))
    except (ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{group}={name}: its file cannot be read as a mapping of keys to values ({reason})."
        ) from None


# The jobs of a sweep have most of their files in common.
@lru_cache(maxsize=256)
def _read(text: str) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=True) if text.strip() else {}
    if not isinstance(values, dict):
        raise ValueError("it holds a list")
    return values


def preset_values(experiment: str, groups: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return all that a preset holds, with the files that it names, as nested plain values, not checked yet."""
    chosen = dict(_PLAIN)
    layers = list(_layers(experiment, chosen, ()))
    values = {group: read_file(group, name) for group, name in (chosen | dict(groups or {})).items()}
    for layer in layers:
        overlay(values, layer)
    return {name: {} if value is None else value for name, value in values.items()} | {"experiment": experiment}


def _layers(name: str, chosen: dict[str, str], above: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the values of the presets that a preset builds on, and then its own; name their files in `chosen`."""
    own = read_file("experiment", name)
    overrides: dict[str, str] = {}
    if name in above:
        raise ConfigError(f"preset {name}: builds on itself, through {', '.join(above)}; change its `defaults`.")
    named = own.pop("defaults", None) or []
    for entry in named if isinstance(named, list) else [named]:
        if isinstance(entry, dict) and set(entry) <= {"override /task", "override /train"}:
            overrides |= {key.removeprefix("override /"): str(value) for key, value in entry.items()}
        elif isinstance(entry, str) and (parent := entry.removeprefix("/experiment/")) in choices("experiment"):
            yield from _layers(parent, chosen, [*above, name])
        else:
            hint = did_you_mean(entry, choices("experiment")) if isinstance(entry, str) else ""
            raise ConfigError(
                f"preset {name}: defaults: {entry!r} is neither the name of a preset nor 'override /task: "
                f"<name>' or 'override /train: <name>'.{hint}"
            )
    for group, file in overrides.items():
        if file not in (known := choices(group)):
            raise ConfigError(
                f"preset {name}: override /{group}: {file}: no such {group}.{did_you_mean(file, known)}"
            )
    chosen.update(overrides)
    yield own
