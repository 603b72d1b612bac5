"""Client data passed to a public function, written to a folder, and the keys of the command that name it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from florets.api import Typed
from florets.api.client_data import FORMS
from florets.api.federation import Federation
from florets.conf.compose import OWN_DATA
from florets.conf.presets import preset_values
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import Config
from florets.strategies.core.accountant import usual_delta
from florets.task.settings import of_values

_KEYS = ("target", "owner", "clusters", "classes", "regression")
"""Keyword arguments of the public functions that belong to the clients' data."""
_OF_CLIENTS = ("clusters", "classes", "regression")
"""Those that are not also keys of the command."""


def clients_of(
    first: Any, keys: Mapping[str, Any], fewest: int = 2, several: bool = False
) -> tuple[Any, dict[str, Any], Federation | None]:
    """Return the preset, the keys and the clients of a public function's arguments, the data written to a folder."""
    if isinstance(first, Typed):
        return first, {}, None
    experiment = first
    if isinstance(first, list | tuple) and first and all(isinstance(one, str) for one in first):
        if not several:
            raise ConfigError("experiment: is a list of names; give one, or florets.sweep all of them.")
        experiment = list(first)
    elif first is not None and not isinstance(first, str):
        if keys.get("clients") is not None:
            raise ConfigError("clients: are given twice; leave out one of them.")
        experiment, keys = None, {**keys, "clients": first}
    if keys.get("clients") is None:
        if "clients" in keys:
            raise ConfigError(f"clients: is None; give {FORMS} for each client, or leave it out.")
        if alone := [name for name in _OF_CLIENTS if keys.get(name) is not None]:
            raise ConfigError([f"{name}: describes clients=, and none are given." for name in alone])
        return experiment, dict(keys), None
    rest = {name: value for name, value in keys.items() if name not in ("clients", *_KEYS)}
    try:
        federation = _federation(keys, rest)
    except ConfigError as error:
        # A mistyped key may be the reason.
        others = [name for name in rest if name not in Config.__dataclass_fields__]
        hints = [f"{name}: there is no such key.{hint}" for name in others if (hint := did_you_mean(name, _KEYS))]
        raise ConfigError([*hints, *error.problems]) from None
    if "data_dir" in rest:
        raise ConfigError(
            f"data_dir={str(rest['data_dir'])[:100]}: clients= are the data already; leave one of them out."
        )
    if experiment is None and "experiment" not in rest:
        experiment = OWN_DATA
    if len(federation) < fewest and "min_clients" not in rest:
        raise ConfigError(f"clients: only {federation.names[0]!r} is given; give at least {fewest}.")
    chosen = rest.get("experiment", experiment)
    for one in [chosen] if isinstance(chosen, str) else chosen:
        _refuse_other_data(str(one))
    folder = federation.write(Path(rest.get("results_dir", Config.results_dir)).expanduser().absolute())
    given = _dotted(rest)
    form: dict[str, Any] = {}
    if (kind := given.get("privacy.kind", "none")) != "none":
        # No client describes its data, and how many there are is known.
        form = {**federation.form, "min_clients": len(federation)}
        # Of single records there are many more than clients.
        form |= {} if kind == "example" else {"privacy.delta": usual_delta(len(federation))}
    own = {name: value for name, value in {**form, **federation.settings}.items() if name not in given}
    if federation.has_rows and of_values(str(given.get("loss", given.get("task.loss", "")))):
        own["task.data_options.regression"] = True
    if "loss" in given:
        own.pop("task.loss", None)
    return experiment, {"data_dir": str(folder), **own, **rest}, federation


def _federation(keys: Mapping[str, Any], rest: Mapping[str, Any]) -> Federation:
    """Return the federation that keyword arguments describe."""
    own = {name: keys[name] for name in _KEYS if keys.get(name) is not None}
    if isinstance(keys["clients"], Federation):
        if own:
            raise ConfigError([f"{name}: give it to Federation(...) itself." for name in own])
        return keys["clients"]
    given = _dotted(rest)
    classes = given.get("task.data_options.classes")
    if classes is not None:
        own.setdefault("classes", classes)
    loss = str(given.get("loss", given.get("task.loss", "")))
    if given.get("task.data_options.regression") or of_values(loss):
        own["regression"] = True
    return Federation(keys["clients"], **own)


def _dotted(keys: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested keys as dotted ones."""
    found: dict[str, Any] = {}
    for name, value in keys.items():
        if isinstance(value, Mapping):
            found |= _dotted(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _refuse_other_data(experiment: str) -> None:
    try:
        task = preset_values(experiment).get("task", {})
    except ConfigError:
        # An unknown preset is refused later.
        return
    if (task.get("data"), task.get("partition")) != ("own", "own"):
        raise ConfigError(
            f"experiment={experiment}: names data, and clients= are others; leave it out, or give a preset for "
            f"nodes with data of their own, such as {OWN_DATA}."
        )
