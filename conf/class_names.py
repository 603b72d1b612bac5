"""Names of classes as they were typed: to YAML and to Hydra's grammar, no, 01, 1e3 or true is no text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from florets.conf.folders import files_below
from florets.conf.problems import ConfigError

_OPTIONS, _CLASSES = "task.data_options", "classes"
# Quoted texts come whole; what is not quoted ends where a list or a mapping goes on.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\[\]]|[^,\[\]{}'"]+""")
# What Hydra reads as something else; plain integers stay what they are.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NO_TEXT = re.compile(r"null|true|false|[+-]?(nan|inf|[0-9._]+(e[+-]?[0-9_]+)?)", re.IGNORECASE)


def quoted(override: str) -> str:
    """Return an override `key=value` with those class names in quotes that Hydra would not read as text."""
    key, equals, value = override.partition("=")
    whole = key == f"{_OPTIONS}.{_CLASSES}"
    if not whole and key != _OPTIONS:
        return override
    before, inside = "", False

    def one(found: re.Match[str]) -> str:
        nonlocal before, inside
        token = found[0]
        name = token.strip()
        if name in ("[", "]"):
            inside = name == "[" and (whole or before == f"{_CLASSES}:")
        elif inside and _NO_TEXT.fullmatch(name) and not _INTEGER.fullmatch(name):
            token = token.replace(name, f'"{name}"')
        before = name
        return token

    return f"{key}{equals}{_TOKEN.sub(one, value)}"


def as_written(values: Mapping[str, Any], folders: Sequence[Path]) -> None:
    """Replace class names that YAML read as something else than text by what the preset's file has, in place.

    Parameters
    ----------
    values
        Nested values of composed presets.
    folders
        Of the presets. Which of their files a value is from is not known: each that reads so is looked at.

    Raises
    ------
    ConfigError
        If files differ in what reads so.
    """
    task = values.get("task")
    options = task.get("data_options") if isinstance(task, Mapping) else None
    if not isinstance(options, dict):
        return
    names = options.get(_CLASSES)
    if not isinstance(names, list) or all(isinstance(name, str) for name in names):
        return
    found = {texts for texts in _lists(folders) if _reads_as(texts, names)}
    if len(found) > 1:
        raise ConfigError([_remedy(names)])
    for texts in found:
        # A function of the user's may well take integers.
        options[_CLASSES] = [name if str(name) == text else text for name, text in zip(names, texts, strict=True)]


def class_problems(options: Mapping[str, Any]) -> list[str]:
    """Return a problem where a class name is no text, and it is not known what it was written as."""
    names = options.get(_CLASSES)
    if not isinstance(names, list) or all(isinstance(name, str) or type(name) is int for name in names):
        return []
    return [_remedy(names)]


def _remedy(names: Sequence[Any]) -> str:
    place = next((n for n, name in enumerate(names, 1) if not isinstance(name, str) and type(name) is not int), 1)
    return (
        f"{_OPTIONS}.{_CLASSES}: name {place} is read as {type(names[place - 1]).__name__} and not as the text that "
        f'was written: put the names in quotes, {_CLASSES}: ["no", "yes"].'
    )


def as_texts(text: str) -> Any:
    """Return what YAML has, with every scalar as the text that is written; raise yaml.YAMLError as PyYAML does."""
    return yaml.BaseLoader(text).get_single_data()


def _lists(folders: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Yield the class names in presets, as they are written."""
    for entry in (entry for folder in folders for entry in files_below(str(folder))):
        text = Path(entry.path).read_text(encoding="utf-8")
        if _CLASSES not in text:
            continue
        try:
            preset = as_texts(text)
        except yaml.YAMLError:
            # Not one of those that were composed.
            continue
        # In experiment/ and in task/.
        for place in (("task", "data_options", _CLASSES), ("data_options", _CLASSES)):
            found = preset
            for key in place:
                found = found.get(key) if isinstance(found, Mapping) else None
            if isinstance(found, list) and all(isinstance(name, str) for name in found):
                yield tuple(found)


def _reads_as(texts: Sequence[str], names: Sequence[Any]) -> bool:
    """Return whether names are what a list of texts is read as, by OmegaConf or by PyYAML."""
    return len(texts) == len(names) and all(
        text == name if isinstance(name, str) else any(_same(read, name) for read in _readings(text))
        for text, name in zip(texts, names, strict=True)
    )


def _readings(text: str) -> list[Any]:
    try:
        return [OmegaConf.to_container(OmegaConf.create(f"[{text}]"))[0], yaml.safe_load(text)]  # type: ignore[index]
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, IndexError):
        return []


def _same(one: Any, other: Any) -> bool:
    # 1 is True in Python.
    return type(one) is type(other) and bool(one == other)
