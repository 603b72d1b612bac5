"""Florets: clustered federated learning as a Flower app.

What `__all__` lists is the public interface; everything else is private. Each name is imported when it is first used.

The package consists of the folders `api`, `commands`, `papers`, `studies`, `engines`, `reports`, `server_app`,
`client_app`, `strategies`, `zoo`, `task`, `conf` and `deploy`. In an installed wheel they lie inside this one. In the
repository, and in the app bundle that Flower ships, next to it.
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

_HOMES = {
    "Advice": "api.advise",
    "Anchored": "task.training.objective",
    "Client": "client_app.authors_client",
    "ConfigError": "conf.problems",
    "Dataset": "task.data.dataset",
    "Experiment": "strategies.settings",
    "Federation": "api.federation",
    "Groups": "api.discover",
    "LinearTerm": "task.training.objective",
    "ManyModels": "strategies.settings",
    "Method": "strategies.base.method",
    "Objective": "task.training.objective",
    "OneModel": "strategies.settings",
    "PerClient": "strategies.base.method",
    "Plan": "strategies.base.round",
    "Proximal": "task.training.objective",
    "Round": "strategies.base.round",
    "Run": "api.run",
    "Settings": "strategies.settings",
    "Shard": "task.partitions.shard",
    "State": "strategies.base.report",
    "Steps": "strategies.base.round",
    "Strategy": "strategies.base.strategy",
    "Sweep": "api.sweep",
    "Term": "task.training.objective",
    "Update": "task.wire.replies",
    "Weighted": "strategies.settings",
    "advise": "api.advise",
    "check": "api.check",
    "discover": "api.discover",
    "export": "api.export",
    "handler": "task.imported",
    "load": "api.run",
    "prepare": "api.run",
    "reproduce": "api.reproduce",
    "run": "api.run",
    "setting": "task.keys",
    "sweep": "api.sweep",
    "tune": "api.sweep",
}
"""Module of each public name, below this package."""


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
