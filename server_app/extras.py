"""The optional extras: what each brings, and the command that installs it."""

from importlib.util import find_spec

from florets.conf.problems import ConfigError

_MODULES = {"sim": ("ray", "psutil")}


def require(extra: str, what: str) -> None:
    """Refuse to go on without an extra.

    Parameters
    ----------
    what
        What needs it, as the user typed it.

    Raises
    ------
    ConfigError
        If one of its packages is not installed.
    """
    if missing := [name for name in _MODULES[extra] if find_spec(name) is None]:
        raise ConfigError([f"{what}: needs {' and '.join(missing)}; {install(extra)} brings it."])


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "florets[{extra}]"'
