"""Finding a strategy by its name: a registry name, an installed entry point, or an import path."""

import contextlib
import hashlib
import importlib
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from florets.strategies import PERSONAL, STRATEGIES
from florets.strategies.settings import Settings

DEFAULT = "clove"
GROUP = "florets.strategies"
"""Entry points under which other packages offer strategies."""

_PACKAGE = "florets.strategies"


class UnknownStrategy(ValueError):
    """There is no such strategy; the message says why, `known` lists the names that there are."""

    def __init__(self, reason: str, known: list[str]) -> None:
        super().__init__(reason)
        self.known = known


@dataclass(frozen=True)
class StrategyName:
    """A strategy that was found.

    Attributes
    ----------
    id
        The one name that means it everywhere: in the registry, else of its entry point, else its import path.
    path
        Import path of its class, `package.module:Class`.
    trusted
        False for an import path: loading it runs code that nobody installed as a strategy of florets.
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
    """Return the strategy of a name, without importing it.

    Raises
    ------
    UnknownStrategy
        If it is neither a registry name, nor an installed entry point, nor of the form `package.module:Class`.
    """
    for own in STRATEGIES:
        if name in (own, _class_path(own)):
            return StrategyName(own, _class_path(own), trusted=True)
    offered = _offered()
    for own, path in offered.items():
        if name in (own, path):
            return StrategyName(own, path, trusted=True)
    module, _, attribute = name.partition(":")
    parts = [*module.split("."), attribute]
    if ":" in name and all(part.isidentifier() for part in parts):
        return StrategyName(name, name, trusted=False)
    raise UnknownStrategy("no such strategy", [*STRATEGIES, *sorted(offered)])


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
    """Return the settings of a strategy; of our own ones this imports the settings alone.

    Raises
    ------
    UnknownStrategy
        As `find_strategy`, or if the class cannot be imported or has no settings.
    """
    found = find_strategy(name)
    if found.id in STRATEGIES:
        module = importlib.import_module(f"{_PACKAGE}.{found.id}.settings")
        own: type[Settings] = getattr(module, f"{STRATEGIES[found.id]}Settings")
        return own
    settings: Any = getattr(strategy_class(name), "Settings", None)
    # A class that only inherits would keep its parent's fields and lose its own.
    decorated = isinstance(settings, type) and "__dataclass_params__" in vars(settings)
    if not decorated or not issubclass(settings, Settings):
        raise UnknownStrategy(
            f"class {found.path.rpartition(':')[2]} has no Settings (a frozen dataclass that builds on "
            "florets.strategies.settings.Settings, with @dataclass(frozen=True) above it)",
            strategy_names(),
        )
    checked: type[Settings] = settings
    return checked


def strategy_class(name: str) -> type[Any]:
    """Import the class of a strategy.

    Raises
    ------
    UnknownStrategy
        If it cannot be imported or is no class.
    """
    found = find_strategy(name)
    module_name, _, attribute = found.path.partition(":")
    try:
        cls = getattr(importlib.import_module(module_name), attribute, None)
    # A user's module may raise anything while it is imported.
    except Exception as error:
        raise UnknownStrategy(
            f"module {module_name} cannot be imported ({type(error).__name__}: {error})", strategy_names()
        ) from error
    if not isinstance(cls, type):
        raise UnknownStrategy(f"module {module_name} has no class {attribute}", strategy_names())
    return cls


def personal_settings_type(name: str) -> type[Settings]:
    """Return the settings of a personal method, one of our own strategies or of `PERSONAL`."""
    if name not in PERSONAL:
        return settings_type(name)
    own: type[Settings] = getattr(importlib.import_module(f"{_PACKAGE}.{name}.settings"), f"{PERSONAL[name]}Settings")
    return own


def personal_method(name: str, settings: Settings) -> Any:
    """Return the `PersonalMethod` of that name, to run within the groups of a strategy."""
    module = importlib.import_module(f"{_PACKAGE}.{name}.personal")
    return getattr(module, f"{(STRATEGIES | PERSONAL)[name]}Clients")(settings)


def _class_path(name: str) -> str:
    return f"{_PACKAGE}.{name}.strategy:{STRATEGIES[name]}"


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
