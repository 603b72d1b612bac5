"""Florets: clustered federated learning as a Flower app.

What `__all__` lists is the public interface; everything else is private. Each name is imported when it is first used.

In an installed wheel the other folders lie inside this one; in the repository and in Flower's bundle next to it.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers see here what `__getattr__` imports.
    from florets import strategies
    from florets.api.advise import Advice, advise
    from florets.api.check import check
    from florets.api.discover import Groups, discover
    from florets.api.export import export
    from florets.api.federation import Federation
    from florets.api.reproduce import reproduce
    from florets.api.run import Run, load, prepare, run
    from florets.api.sweep import Sweep, sweep, tune
    from florets.client_app.authors_client import Client
    from florets.conf.problems import ConfigError
    from florets.strategies.base.method import Method, PerClient
    from florets.strategies.base.report import State
    from florets.strategies.base.round import Plan, Round, Steps
    from florets.strategies.base.strategy import Strategy
    from florets.strategies.settings import Experiment, ManyModels, OneModel, Settings, Weighted
    from florets.task.data.dataset import Dataset
    from florets.task.imported import handler
    from florets.task.keys import setting
    from florets.task.partitions.shard import Shard
    from florets.task.training.objective import Anchored, LinearTerm, Objective, Proximal, Term
    from florets.task.wire.replies import Update

__all__ = [
    "Advice",
    "Anchored",
    "Client",
    "ConfigError",
    "Dataset",
    "Experiment",
    "Federation",
    "Groups",
    "LinearTerm",
    "ManyModels",
    "Method",
    "Objective",
    "OneModel",
    "PerClient",
    "Plan",
    "Proximal",
    "Round",
    "Run",
    "Settings",
    "Shard",
    "State",
    "Steps",
    "Strategy",
    "Sweep",
    "Term",
    "Update",
    "Weighted",
    "__version__",  # noqa: F822 - `__getattr__` has it
    "advise",
    "apps",
    "check",
    "discover",
    "export",
    "handler",
    "load",
    "prepare",
    "reproduce",
    "run",
    "setting",
    "strategies",
    "sweep",
    "tune",
]

_HERE = Path(__file__).resolve().parent

if not (_HERE / "strategies").is_dir():
    __path__.append(str(_HERE.parent))

_NAMES: dict[str, tuple[str, ...]] = {
    "api.advise": ("Advice", "advise"),
    "api.check": ("check",),
    "api.discover": ("Groups", "discover"),
    "api.export": ("export",),
    "api.federation": ("Federation",),
    "api.reproduce": ("reproduce",),
    "api.run": ("Run", "load", "prepare", "run"),
    "api.sweep": ("Sweep", "sweep", "tune"),
    "client_app.authors_client": ("Client",),
    "conf.problems": ("ConfigError",),
    "strategies.base.method": ("Method", "PerClient"),
    "strategies.base.report": ("State",),
    "strategies.base.round": ("Plan", "Round", "Steps"),
    "strategies.base.strategy": ("Strategy",),
    "strategies.settings": ("Experiment", "ManyModels", "OneModel", "Settings", "Weighted"),
    "task.data.dataset": ("Dataset",),
    "task.imported": ("handler",),
    "task.keys": ("setting",),
    "task.partitions.shard": ("Shard",),
    "task.training.objective": ("Anchored", "LinearTerm", "Objective", "Proximal", "Term"),
    "task.wire.replies": ("Update",),
}
"""Public names of each module, below this package."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from florets.conf.extras import version

        return version()
    if name == "strategies":
        return import_module("florets.strategies")
    if name not in _HOMES:
        raise AttributeError(f"module 'florets' has no attribute {name!r}; it has {', '.join(__all__)}")
    if _HOMES[name].startswith("api."):
        _require_server(f"florets.{name}")
    value = getattr(import_module(f"florets.{_HOMES[name]}"), name)
    # Found at once from now on.
    globals()[name] = value
    return value


def _require_server(what: str) -> None:
    """Raise ConfigError where the packages that a client node goes without are not installed."""
    from florets.conf.extras import require

    require("server", what)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Apps:
    """The two apps as pyproject.toml names them to Flower, each imported when it is asked for.

    Named by their own modules, they failed now and then: to look for `florets.client_app.app`, one thread of a
    simulation uses this package while another is still importing it and has not reached its path.
    """

    @property
    def client(self) -> Any:
        from florets.client_app.app import app

        return app

    @property
    def server(self) -> Any:
        _require_server("the ServerApp")
        from florets.server_app.app import app

        return app


apps = _Apps()
