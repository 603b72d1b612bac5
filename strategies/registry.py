"""Strategies by their names (registry name, installed entry point or import path), and their settings."""

import contextlib
import hashlib
import importlib
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType
from typing import Any

from florets.strategies import STRATEGIES, module_of
from florets.strategies.settings import Settings

DEFAULT = "clove"
GROUP = "florets.strategies"
"""Entry points under which other packages offer strategies."""

_READ = ("florets.strategies.", "florets.zoo.")
"""Packages of whose modules the settings are read from their source."""


class UnknownStrategy(ValueError):
    """There is no such strategy; the message says why."""


@dataclass(frozen=True)
class StrategyName:
    """A strategy that was found; `id` is the one name that means it everywhere.

    `trusted` is False for an import path: loading it runs code that nobody installed as a strategy of florets.
    """

    id: str
    path: str
    trusted: bool

    @property
    def label(self) -> str:
        """Its short name, for tables: the registry's, else the class's."""
        return self.id if self.trusted else self.path.rpartition(":")[2]

    @property
    def folder(self) -> str:
        """Its name in results folders: as `label`, with a hash that keeps apart equal class names."""
        if self.trusted:
            return self.id
        return f"{self.label}-{hashlib.sha256(self.path.encode()).hexdigest()[:6]}"


def find_strategy(name: str) -> StrategyName:
    """Return the strategy of a name, without importing it; `UnknownStrategy` if the name has no such form."""
    ours = {own: f"{module_of(own)}:{cls}" for own, cls in STRATEGIES.items()}
    for own, path in (ours | _offered()).items():
        if name in (own, path):
            return StrategyName(own, path, trusted=True)
    module, _, attribute = name.partition(":")
    parts = [*module.split("."), attribute]
    if ":" in name and all(part.isidentifier() for part in parts):
        return StrategyName(name, name, trusted=False)
    raise UnknownStrategy("no such strategy")


def strategy_names() -> list[str]:
    """Return the names of all strategies that are installed."""
    return [*STRATEGIES, *sorted(_offered())]


def usable_settings() -> dict[str, type[Settings]]:
    """Return the settings of all installed strategies by name; those of a broken package are left out."""
    found = {}
    for name in strategy_names():
        with contextlib.suppress(UnknownStrategy):
            found[name] = settings_type(name)
    return found


def settings_type(name: str) -> type[Settings]:
    """Return the settings of a strategy; of our own ones without importing it, and Flower with it."""
    found = find_strategy(name)
    if found.id in STRATEGIES:
        module, cls = found.path.split(":")
        own: Any = _source(module).settings(cls) if module not in sys.modules else strategy_class(name).Settings
        return own  # type: ignore[no-any-return]  # whichever of both it is
    settings: Any = getattr(strategy_class(name), "Settings", None)
    # A class that only inherits would keep its parent's fields and lose its own.
    decorated = isinstance(settings, type) and "__dataclass_params__" in vars(settings)
    if not decorated or not issubclass(settings, Settings):
        raise UnknownStrategy(
            f"class {found.path.rpartition(':')[2]} has no Settings (a frozen dataclass that builds on "
            "florets.Settings, with @dataclass(frozen=True) above it)"
        )
    checked: type[Settings] = settings
    return checked


def strategy_class(name: str) -> type[Any]:
    """Import the class of a strategy; `UnknownStrategy` if it cannot be imported or is no class."""
    found = find_strategy(name)
    module_name, _, attribute = found.path.partition(":")
    try:
        cls = getattr(importlib.import_module(module_name), attribute, None)
    # A user's module may raise anything while it is imported.
    except Exception as error:
        raise UnknownStrategy(f"module {module_name} cannot be imported ({type(error).__name__}: {error})") from error
    if not isinstance(cls, type):
        raise UnknownStrategy(f"module {module_name} has no class {attribute}")
    return cls


_STATEMENT = re.compile(r"^(?:@.*\n)*[A-Za-z_].*\n(?:[^A-Za-z_@#\n].*\n|\n)*", re.MULTILINE)
_DEFINES = re.compile(r"(?:@.*\n)*(?:class |def )?(\w+)")
_IMPORTS = re.compile(r"from (\S+) import (.*)|import (.*)", re.DOTALL)


class _Source:
    """A module of which only those statements run that the settings need.

    To import all strategies for `--help`, and Flower with them, takes more than ten times as long.
    """

    def __init__(self, module: str) -> None:
        _, *folders, name = module.split(".")
        text = Path(__file__).parents[1].joinpath(*folders, f"{name}.py").read_text(encoding="utf-8")
        self.values: dict[str, Any] = {"__name__": module}
        self.statements: dict[str, str] = {}
        for statement in _STATEMENT.findall(text):
            if found := _IMPORTS.match(statement):
                names = [name.split(" as ")[-1].strip() for name in (found[2] or found[3]).strip("( \n)").split(",")]
            else:
                names = [_DEFINES.match(statement)[1]]  # type: ignore[index]  # a statement begins with a name
            self.statements.update(dict.fromkeys(names, statement))

    def settings(self, cls: str) -> Any:
        """Return `Settings` of one of the module's classes."""
        named = re.search(r"^    Settings = (\w+)", self.statements[cls], re.MULTILINE)
        assert named is not None
        return self.value(named[1])

    def value(self, name: str) -> Any:
        """Return a name's value, after those of all names that its statement mentions."""
        statement = self.statements.pop(name, "")
        module = statement.split()[1] if statement.startswith("from ") else ""
        if module == "florets":
            # That name alone: another of the same statement may need Flower.
            self.values[name] = getattr(importlib.import_module(module), name)
        elif module.startswith(_READ):
            loaded = sys.modules.get(module)
            self.values[name] = getattr(loaded, name) if loaded else _source(module).value(name)
        elif statement:
            code = compile(statement, str(self.values["__name__"]), "exec")
            for mentioned in _names(code):
                self.value(mentioned)
            exec(code, self.values)
        return self.values.get(name)


@cache
def _source(module: str) -> _Source:
    return _Source(module)


def _names(code: CodeType) -> set[str]:
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


def _offered() -> dict[str, str]:
    """Return name and import path of the strategies that installed packages offer; none takes a name of ours."""
    return {
        point.name: point.value.replace(" ", "")
        for point in _installed(tuple(sys.path))
        if point.name not in STRATEGIES
    }


# Python looks through every installed package, and one run looks a name up a dozen times.
@lru_cache(maxsize=16)
def _installed(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))
