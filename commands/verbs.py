"""Commands that are functions: arguments, errors and help follow from each function's signature and docstring."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Any, get_args

from florets.api.keys import Typed
from florets.conf.problems import ConfigError, did_you_mean
from florets.reports.console import say
from florets.reports.tables import markdown_table

if TYPE_CHECKING:
    from florets.api.advise import Advice
    from florets.api.discover import Groups
    from florets.api.sweep import Sweep
    from florets.studies.check_data import Check

VERBS = {
    "advise": "api.advise",
    "app": "commands.new",
    "assign": "commands.assign",
    "check": "api.check",
    "discover": "api.discover",
    "export": "api.export",
    "new": "commands.new",
    "predict": "commands.assign",
    "provision": "commands.provision",
    "status": "commands.status",
    "stop": "commands.stop",
    "theory": "api.theory",
    "tune": "api.sweep",
}
"""Modules of the functions by the commands' names, which are theirs."""
_PLACES = {bool: "true|false", int: "<n>", Path: "<path>", str: "<text>"}
"""Types that a command line can give, and what its usage shows for them."""


def run(word: str, arguments: Sequence[str]) -> int:
    """Call a command's function with what was typed, print its result, and return the exit code."""
    function = _function(word)
    if not arguments and any(one.default is Parameter.empty for one in _own(function).values()):
        print(help_of(word))
        return 0
    places, keys = read(word, arguments)
    result = function(*places, **keys)
    return _SHOWN[word](result) if word in _SHOWN else 0


def read(word: str, arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a command's function; ConfigError with all that does not fit its signature."""
    function = _function(word)
    own = _own(function)
    words = [name for name, one in own.items() if one.kind is Parameter.POSITIONAL_ONLY]
    problems, given, others, places = list[str](), dict[str, str](), list[str](), list[str]()
    for text in arguments:
        key, equals, value = text.partition("=")
        if text in ("-q", "--quiet") and _takes_keys(function):
            others.append("quiet=true")
        elif text.startswith("-"):
            known = "-h, -q, --debug" if _takes_keys(function) else "-h, --debug"
            problems.append(f"{text}: florets {word} has no such option ({known}).")
        elif not equals or key not in own or key in words:
            (places if words and not equals else others).append(text)
        elif not value:
            problems.append(f"{text}: needs a value, {key}=<value>.")
        elif given.setdefault(key, value) != value:
            problems.append(f"{key}: given twice with two values; keep one.")
    if not _takes_keys(function):
        hints = [(text, did_you_mean(text.partition("=")[0], own)) for text in others]
        problems += [f"{text}: florets {word} has no such key.{hint}" for text, hint in hints]
    keys = {key: _value(key, text, _kinds(function, own[key]), problems) for key, text in given.items()}
    needed = [name for name, one in own.items() if one.default is Parameter.empty]
    problems += [
        f"{key} is missing: florets {word} needs {key}=<path>."
        for key in needed
        if key not in given and key not in words
    ]
    if not sum(name in needed for name in words) <= len(places) <= len(words):
        wanted, found = " and ".join(f"<{name}>" for name in words), ", ".join(places) or "nothing"
        problems.append(f"florets {word}: takes {wanted}, and was given {found}.")
    if problems:
        raise ConfigError(problems)
    return [Typed(others)] if _takes_keys(function) else places, keys


def help_of(word: str, width: int = 110) -> str:
    """Return the help on a command: its usage, then what the docstring says of it, its keys and its use."""
    function = _function(word)
    parts = re.split(r"(?m)^(\w+)\n-{3,}\n", str(inspect.getdoc(function)).replace("``", ""))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    own = _own(function)
    usage = " ".join(["florets", word, *(_usage(function, one) for one in own.values())])
    usage += " [<key>=<value> ...]" if _takes_keys(function) else ""
    told = dict(_parameters(sections.get("Parameters", "")))
    column = max(map(len, own), default=0) + 2
    keys = [_beside(name, told[name], column, width - 2) for name in own]
    notes = sections.get("Notes", "").replace("::\n\n", "").strip("\n")
    blocks = [_wrapped(parts[0].strip(), width - 2), "\n".join(keys), notes]
    return f"{usage}\n" + "\n\n".join(indent(block, "  ") for block in blocks if block)


def _function(word: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"florets.{VERBS[word]}"), word)
    return found


def _takes_keys(function: Callable[..., Any]) -> bool:
    """Return whether an experiment's keys may be given as well."""
    return any(one.kind is Parameter.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def _own(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters that a command line can give: all but an experiment's keys, and data in memory."""
    return {
        name: one
        for name, one in inspect.signature(function).parameters.items()
        if not _kinds(function, one).isdisjoint(_PLACES)
        and not (one.kind is Parameter.POSITIONAL_ONLY and _takes_keys(function))
    }


def _kinds(function: Callable[..., Any], parameter: Parameter) -> set[Any]:
    """Return the types that a parameter takes."""
    hint = parameter.annotation
    if isinstance(hint, str):
        hint = eval(hint, vars(sys.modules[function.__module__]))
    return set(get_args(hint) or [hint])


def _value(key: str, text: str, kinds: set[Any], problems: list[str]) -> Any:
    if bool in kinds:
        if text not in ("true", "false"):
            problems.append(f"{key}={text}: must be true or false.")
        return text == "true"
    if int not in kinds:
        return text
    if not text.removeprefix("-").isdecimal():
        problems.append(f"{key}={text}: must be an integer.")
        return 0
    return int(text)


def _usage(function: Callable[..., Any], one: Parameter) -> str:
    kinds = _kinds(function, one)
    shown = next(place for kind, place in _PLACES.items() if kind in kinds)
    text = f"<{one.name}>" if one.kind is Parameter.POSITIONAL_ONLY else f"{one.name}={shown}"
    return text if one.default is Parameter.empty else f"[{text}]"


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


def _show_advice(found: "Advice") -> int:
    say(found.text)
    return 0 if found.chosen is not None else 1


def _show_check(found: "Check") -> int:
    say(found.text)
    return 0 if found.is_usable else 1


def _show_groups(found: "Groups") -> int:
    say(f"{found.text}\nResults: {found.run.folder}")
    return 0


def _show_models(folder: Path) -> int:
    say(f"Models: {folder}")
    return 0


def _show_theory(found: Any) -> int:
    table = [["quantity", "theory", "here", "holds", "source"]]
    for row in found.astype(object).where(found.notna(), None).itertuples():
        theory, here = ("" if value is None else f"{value:.4g}" for value in (row.theory, row.here))
        holds = {None: "", True: "yes", False: "no"}[row.holds]
        table.append([row.quantity, f"{row.rule} {theory}" if theory else "", here, holds, row.source])
    say(f"{found.attrs['title']}\n\n{markdown_table(table)}")
    return 0


def _show_trials(found: "Sweep") -> int:
    return 1 if found.frame["error"].notna().any() else 0


_SHOWN: Mapping[str, Callable[[Any], int]] = {
    "advise": _show_advice,
    "check": _show_check,
    "discover": _show_groups,
    "export": _show_models,
    "theory": _show_theory,
    "tune": _show_trials,
}
"""What prints a result, and returns the exit code; the other functions print themselves."""
