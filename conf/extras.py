"""The installed package: its version, and the optional extras with the command that installs them."""

from importlib.util import find_spec
from pathlib import Path

from florets.conf.problems import ConfigError

PROJECT = Path(__file__).resolve().parents[1]
"""Folder with the app's pyproject.toml: the repository, or the installed package, whose wheel carries a copy."""

_BRINGS = {
    "server": {
        "scipy": "scipy",
        "torchvision": "torchvision",
        "hydra-core": "hydra",
        "matplotlib": "matplotlib",
        "jinja2": "jinja2",
        "safetensors": "safetensors",
        "rich": "rich",
        "pyyaml": "yaml",
        "cloudpickle": "cloudpickle",
    },
    "sim": {"ray": "ray", "psutil": "psutil"},
    "tensorboard": {"tensorboard": "tensorboard"},
    "mlflow": {"mlflow-skinny": "mlflow", "sqlalchemy": "sqlalchemy", "alembic": "alembic"},
    "sweep": {"hydra-joblib-launcher": "hydra_plugins.hydra_joblib_launcher"},
    "tune": {"hydra-optuna-sweeper": "hydra_plugins.hydra_optuna_sweeper"},
}
"""Package and module, by extra."""


def require(extra: str, what: str) -> None:
    """Raise ConfigError where a package of an extra is not installed; `what` needs it, as the user typed it."""
    if missing := [package for package, module in _BRINGS[extra].items() if not _is_installed(module)]:
        named = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        raise ConfigError(f'{what}: needs {named}; pip install "florets[{extra}]" installs it.')


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # Not even the package that it would be in is there.
        return False


def version() -> str:
    """Return the version of this copy of the package."""
    # Costs time that only this needs.
    import tomllib

    described = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(described["project"]["version"])
