"""Commands that are functions: arguments, errors and help are read from each one's source, without importing it."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent, wrap
from typing import Any, NamedTuple

from florets.api import Typed
from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.console import say
from florets.task.imported import import_from

VERBS = {
    "advise": "api.advise",
    "app": "commands.new",
    "assign": "commands.assign",
    "check": "api.check",
    "discover": "api.discover",
    "export": "api.export",
    "new": "commands.new",
    "plan": "commands.plan",
    "predict": "commands.assign",
    "provision": "commands.provision",
    "reproduce": "commands.reproduce",
    "status": "commands.status",
    "stop": "commands.status",
    "tune": "api.sweep",
}
"""Modules of the functions by the commands' names, which are theirs."""
_TYPES = {"bool": "true|false", "int": "<n>", "Path": "<path>", "str": "<text>"}
"""Types that a command line can give, and what its usage shows for them."""


class Parameter(NamedTuple):
    """What a command line can give to a function: a word in its place, a key with a value, or an option alone."""

    kind: str
    is_word: bool
    is_needed: bool
    is_option: bool


class Verb(NamedTuple):
    """A command's function; `takes_keys`: an experiment's keys may be given as well."""

    doc: str
    own: dict[str, Parameter]
    takes_keys: bool


def run(word: str, arguments: Sequence[str]) -> int:
    """Call a command's function with what was typed, print its result, and return the exit code."""
    if not arguments and any(one.is_needed for one in verb(word).own.values()):
        print(help_of(word))
        return 0
    places, keys = read(word, arguments)
    import_from(Path.cwd())
    result = getattr(import_module(f"florets.{VERBS[word]}"), word)(*places, **keys)
    if word in _SHOWN:
        return _SHOWN[word](result)
    return result or 0


@cache
def verb(word: str) -> Verb:
    """Read a command's function: what it takes are texts, numbers, paths and booleans, and no data in memory."""
    spec = find_spec(f"florets.{VERBS[word]}")
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    function = next(one for one in body if isinstance(one, ast.FunctionDef) and one.name == word)
    of, takes_keys = function.args, function.args.kwarg is not None
    named = [*of.posonlyargs, *of.args]
    defaults = [*[None] * (len(named) - len(of.defaults)), *of.defaults, *of.kw_defaults]
    own = {}
    for one, default in zip([*named, *of.kwonlyargs], defaults, strict=True):
        types = re.findall(r"\w+", ast.unparse(one.annotation) if one.annotation else "")
        kind = next((kind for kind in _TYPES if kind in types and "dict" not in types), "")
        is_word = one in of.posonlyargs
        if kind and not (is_word and takes_keys):
            # Beside an experiment's keys a boolean is an option.
            own[one.arg] = Parameter(kind, is_word, default is None, kind == "bool" and takes_keys)
    return Verb(ast.get_docstring(function) or "", own, takes_keys)


def read(word: str, arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a command's function; ConfigError with all that does not fit its signature."""
    _, own, takes_keys = verb(word)
    words = [name for name, one in own.items() if one.is_word]
    options = {_option(name): name for name, one in own.items() if one.is_option}
    problems, given, others, places = list[str](), dict[str, str](), list[str](), list[str]()
    for text in arguments:
        key, equals, value = text.partition("=")
        if text in ("-q", "--quiet") and takes_keys:
            others.append("quiet=true")
        elif text in options:
            given[options[text]] = "true"
        elif text.startswith("-"):
            known = ", ".join([*options, "-h", *(["-q"] if takes_keys else []), "--debug"])
            problems.append(f"{text}: florets {word} has no such option ({known}).")
        elif words and not (equals and key.isidentifier()):
            places.append(text)
        elif not equals or key not in own or key in words or own[key].is_option:
            others.append(text)
        elif not value:
            problems.append(f"{text}: needs a value, {key}=<value>.")
        elif given.setdefault(key, value) != value:
            problems.append(f"{key}: given twice with two values; keep one.")
    if not takes_keys:
        hints = [(text, did_you_mean(text.partition("=")[0], own)) for text in others]
        problems += [f"{text}: florets {word} has no such key.{hint}" for text, hint in hints]
    keys = {key: _value(key, text, own[key].kind, problems) for key, text in given.items()}
    missing = [name for name, one in own.items() if one.is_needed and not one.is_word and name not in given]
    problems += [f"{key} is missing: florets {word} needs {key}=<path>." for key in missing]
    if not sum(own[name].is_needed for name in words) <= len(places) <= len(words):
        wanted, found = " and ".join(f"<{name}>" for name in words), ", ".join(places) or "nothing"
        problems.append(f"florets {word}: takes {wanted}, and was given {found}.")
    if problems:
        raise ConfigError(problems)
    return [Typed(others)] if takes_keys else places, keys


def help_of(word: str, width: int = 110) -> str:
    """Return the help on a command: its usage, then what the docstring says of it, its keys and its use."""
    doc, own, takes_keys = verb(word)
    parts = re.split(r"(?m)^(\w+)\n-{3,}\n", doc.replace("``", ""))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    # An item stands among an experiment's keys.
    item = ["<item>"] if word == "reproduce" else []
    usage = " ".join(["florets", word, *item, *(_usage(name, one) for name, one in own.items())])
    usage += " [<key>=<value> ...]" if takes_keys else ""
    told = dict(_parameters(sections.get("Parameters", "")))
    heads = {name: _option(name) if one.is_option else name for name, one in own.items()}
    column = max(map(len, heads.values()), default=0) + 2
    keys = [_beside(head, told[name], column, width - 2) for name, head in heads.items()]
    notes = sections.get("Notes", "").replace("::\n\n", "").strip("\n")
    blocks = [_wrapped(parts[0].strip(), width - 2), "\n".join(keys), notes]
    return f"{usage}\n" + "\n\n".join(indent(block, "  ") for block in blocks if block)


def _value(key: str, text: str, kind: str, problems: list[str]) -> Any:
    if kind == "bool":
        if text not in ("true", "false"):
            problems.append(f"{key}={text}: must be true or false.")
        return text == "true"
    if kind != "int":
        return text
    if not text.removeprefix("-").isdecimal():
        problems.append(f"{key}={text}: must be an integer.")
        return 0
    return int(text)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _usage(name: str, one: Parameter) -> str:
    if one.is_option:
        return f"[{_option(name)}]"
    text = f"<{name}>" if one.is_word else f"{name}={_TYPES[one.kind]}"
    return text if one.is_needed else f"[{text}]"


def _parameters(section: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the parameters that a docstring explains."""
    for entry in re.split(r"(?m)^(?=\S)", section):
        names, _, text = entry.partition("\n")
        for name in names.partition(" : ")[0].split(", "):
            yield name, text


def _beside(name: str, text: str, column: int, width: int) -> str:
    first, *rest = wrap(" ".join(text.split()), width - column, break_on_hyphens=False)
    return "\n".join([name.ljust(column) + first, *(" " * column + line for line in rest)])


def _wrapped(text: str, width: int) -> str:
    return "\n\n".join(
        "\n".join(wrap(" ".join(part.split()), width, break_on_hyphens=False)) for part in text.split("\n\n")
    )


def _told(text: str, is_good: bool = True) -> int:
    say(text)
    return 0 if is_good else 1


_SHOWN: Mapping[str, Callable[[Any], int]] = {
    "advise": lambda found: _told(found.text, found.chosen is not None),
    "check": lambda found: _told(found.text, found.is_usable),
    "discover": lambda found: _told(f"{found.text}\nResults: {found.run.folder}"),
    "export": lambda folder: _told(f"Models: {folder}"),
    "tune": lambda found: int(found.frame["error"].notna().any()),
}
"""Printers of results, by verb, which return the exit code; the other verbs' functions print, and may return it."""
