"""Configuration of a run in its folder: the folder's path, and `config.yaml`."""

import copy
import hashlib
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from florets.conf.compose import follow
from florets.conf.consent import TRUST, import_paths, require_trust
from florets.conf.overrides import Given, dotted, nest, overlay, quote, read_overrides
from florets.conf.problems import ConfigError
from florets.conf.schema import WITHOUT_EFFECT, Chosen, Config, as_plain, show
from florets.conf.validate import checked_config
from florets.strategies.registry import DEFAULT, UnknownStrategy, find_strategy, settings_type


def default_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the dotted keys that a plain configuration with this strategy can have."""
    strategy = values.get("strategy")
    return _defaults(str(strategy.get("name", DEFAULT)) if isinstance(strategy, Mapping) else DEFAULT)


def beyond_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted keys of a plain configuration that are not at their defaults, and the strategy's name."""
    defaults = default_values(values)
    return {key: value for key, value in dotted(values) if key not in defaults or defaults[key] != value}


@lru_cache(maxsize=256)
def _defaults(strategy: str) -> dict[str, Any]:
    try:
        settings = settings_type(strategy)
    except UnknownStrategy:
        # It was registered elsewhere, or is gone: there is nothing that its settings could be compared with.
        own = as_plain(Config())
        del own["strategy"]
    else:
        own = as_plain(Config(strategy=Chosen(strategy, settings())))
        follow(own, settings, {}, strategy)
        del own["strategy"]["name"]
    return dict(dotted(json.loads(json.dumps(own))))


# These are in the path anyway or in another form (the data's folder).
_LEFT_OUT = ("experiment", "strategy", "seed", TRUST, "data_dir", *WITHOUT_EFFECT)
_LONGEST = 120


def run_folder(config: Config, overrides: Sequence[str]) -> Path:
    """Return `<experiment>/<strategy>/<other overrides>/seed-<s>`, relative to the results folder.

    Characters that a shell or Hydra would mind become `-`; a short hash then keeps apart what would fall together.
    """
    problems: list[str] = []
    given = read_overrides(overrides, problems)
    if problems:
        raise ConfigError(problems)
    texts = [f"{entry.key}-{show(entry.value)}" for entry in given if entry.key not in _LEFT_OUT]
    if any(entry.key == "data_dir" for entry in given):
        texts.append(f"data_dir-{_digest(str(Path(config.data_dir).expanduser().resolve()))}")
    texts.sort()
    folder = Path(config.experiment) / find_strategy(config.strategy.name).folder
    if texts:
        exact = "__".join(texts)
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", exact)
        if safe != exact or len(safe) > _LONGEST:
            safe = f"{safe[:_LONGEST].strip('-')}-{_digest(exact)}"
        folder /= safe
    return folder / f"seed-{config.seed}"


def _digest(text: str) -> str:
    # A path may hold bytes that are no text.
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]


def results_folder(config: Config, overrides: Sequence[str]) -> Path:
    """Return the absolute folder of a run's results; see `run_folder`."""
    return (Path(config.results_dir).expanduser() / run_folder(config, overrides)).absolute()


def resume_command(folder: Path, trust: bool = False, by_flower: bool = False) -> str:
    """Return the command, as one types it in a shell, that goes on with the run in a folder."""
    if by_flower:
        # JSON's texts are TOML's.
        settings = f"resume={json.dumps(str(folder), ensure_ascii=False)}" + (
            " overrides='trust=true'" if trust else ""
        )
        return f"flwr run . --stream --run-config {shlex.quote(settings)}"
    plain = f"resume={folder}"
    # A second layer of quotes, Hydra's, only where there is no other way: it is hard to read.
    special = set(str(folder)) & set(",'\"[]{}()\\")
    command = f"florets {shlex.quote(f'resume={quote(str(folder))}' if special else plain)}"
    return f"{command} trust=true" if trust else command


def saved_config(
    folder: Path, given: Sequence[Given] = (), trust: bool = False, unused: Collection[str] = ()
) -> Config:
    """Return the configuration of a run's ``config.yaml``, with the keys `given` changed, checked anew."""
    path = folder / "config.yaml"
    if not path.is_file():
        what = "there is no run in this folder (no config.yaml)" if folder.is_dir() else "there is no such folder"
        raise ConfigError(f"{folder}: {what}; name a run's folder.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    # PyYAML raises a ValueError for a day that no month has, and nested too deeply a file ends the stack.
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{path} cannot be read ({reason}); run the experiment again.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds no configuration; run the experiment again.")
    if not isinstance(values.get("strategy", {}), dict):
        values["strategy"] = {"name": values["strategy"]}
    if not trust:
        named = import_paths(values)
        require_trust(f"{folder}: the run", {key: path for key, path in named.items() if key not in unused})
    saved = copy.deepcopy(values)
    overlay(values, nest({entry.key: entry.value for entry in given}))
    config, problems = checked_config(values)
    if config is None or problems:
        # Only what the file has wrong by itself is the file's fault.
        own = checked_config(saved)[1]
        raise ConfigError([f"{path}: {problem}" if problem in own else problem for problem in problems])
    return config


def absolute(folder: str, caller: Path) -> Path:
    """Return a folder as an absolute path, `~` expanded."""
    return (caller / Path(folder).expanduser()).resolve()


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Tell of a file that is missing or damaged, and what to do, as a `ConfigError`."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}); {remedy}.") from None
