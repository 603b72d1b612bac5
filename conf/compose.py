"""From what a user typed to one checked `Config`: presets through Hydra, explicit keys on top.

Order: schema < preset < explicit key. Hydra composes the groups (`experiment`, `task`, `train`); the explicit keys
are laid on top here and not by Hydra, for three reasons: all problems come in one error in our own
words, `+key` opens no back door, and option mappings take new entries without a `+`.
"""

import copy
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from florets.conf.class_names import as_written
from florets.conf.consent import TRUST, import_paths, read_trust, require_trust
from florets.conf.folders import file_of, files_below, names_of, own_dir
from florets.conf.follow import follow, start_of_folds
from florets.conf.layers import dotted, is_option, nest, overlay, whole_options
from florets.conf.libraries import spell_out
from florets.conf.overrides import GROUPS, SHORT, Given, full, read_overrides
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.run_config import quote
from florets.conf.schema import Config, TaskConfig, known_keys
from florets.conf.typed import read_strategy, show
from florets.conf.validate import OWN, checked_config
from florets.strategies import STRATEGIES
from florets.strategies.registry import DEFAULT, find_strategy, settings_type

OWN_DATA = "own_data"
"""Preset of nodes with data of their own."""
CONFIG_DIR = Path(__file__).resolve().parent

# So that a preset may say `${sum:25000,${k}}` where one number follows from another.
OmegaConf.register_new_resolver("sum", lambda *terms: sum(terms), replace=True)
# And `${share:5,${k},2}`, 5 for every 2 of k, rounded down.
OmegaConf.register_new_resolver("share", lambda part, count, every: part * count // every, replace=True)


def choices(group: str) -> list[str]:
    """Return the names that a group offers, sorted: `choices("experiment")` holds `clove/linear`."""
    return names_of(group, CONFIG_DIR)


def preset_values(experiment: str) -> dict[str, Any]:
    """Return all that a preset holds, as nested plain values that are not checked yet."""
    return _compose_groups({"experiment": experiment})


def compose(overrides: Sequence[str]) -> Config:
    """Return the experiment that `overrides` describe, checked.

    It can be called any number of times in a process, also inside a job of a Hydra sweep, and depends neither
    on the working directory nor on where the package lies.

    Parameters
    ----------
    overrides : sequence of str
        `key=value` texts in Hydra's grammar, such as `experiment=clove/linear`, `strategy=ifca`, `k=5`.

    Raises
    ------
    ConfigError
        With every problem found: a wrong key, type, range or combination, one key with two values; or if a preset
        names code by an import path, and `trust=true` is not among the overrides.
    """
    problems: list[str] = []
    given = [full(entry) for entry in read_overrides(overrides, problems)]
    problems += _twice(given)
    trust = any(read_trust(entry.value, entry.text, problems) for entry in given if entry.key == TRUST)
    given = [entry for entry in given if entry.key != TRUST]
    groups = {entry.key: str(entry.value) for entry in given if entry.key in GROUPS}
    if any(entry.text.partition("=")[0] in SHORT for entry in given):
        # Only nodes with tables of their own have a target or an owner's column.
        groups.setdefault("experiment", OWN_DATA)
    for entry in given:
        if entry.key in GROUPS and entry.value not in choices(entry.key):
            names = choices(entry.key)
            hint = did_you_mean(str(entry.value), names)
            problems.append(f"{entry.text}: there is no such {entry.key}.{hint} There are: {', '.join(names)}.")
            # Without the preset every further problem would be a guess.
            del groups[entry.key]
    if problems and any(entry.key in GROUPS and entry.key not in groups for entry in given):
        raise ConfigError(problems)

    values = _compose_groups(groups)
    preset = f"preset {values['experiment']}"
    chosen = next((show(entry.value) for entry in given if entry.key == "strategy"), None)
    own_keys = values.get("strategy", DEFAULT)
    values["strategy"] = dict(own_keys) if isinstance(own_keys, Mapping) else {"name": own_keys}
    typed = {entry.key for entry in given}
    if not trust:
        # It is imported at once; the rest is looked at when it is resolved.
        require_trust(preset, _not_typed({"strategy": values["strategy"]}, typed))
    settings = read_strategy(chosen or str(values["strategy"].get("name", DEFAULT)), problems)
    if settings is None:
        # Without the strategy every further problem would be a guess.
        raise ConfigError(problems)
    strategy = find_strategy(chosen or str(values["strategy"].get("name", DEFAULT))).id
    values["strategy"]["name"] = strategy
    faults: list[str] = []
    own, own_run = _own_keys(values.pop("for_strategy", {}), strategy, preset, faults)
    # It is for `florets -m` alone: sweep_block.py.
    values.pop("sweep", None)
    _check_preset(values, strategy, preset, faults)
    if faults:
        raise ConfigError(problems + faults)
    values["strategy"].update(own)
    overlay(values, nest([Given(key, value, f"{key}={show(value)}") for key, value in own_run.items()]))
    for group in ("task", "train"):
        if group in groups:
            # The preset was laid over the file that was chosen by hand; what is given by hand wins.
            overlay(values, {group: _read_yaml(file_of(group, groups[group], CONFIG_DIR))})
    as_written(values, [folder for folder in (CONFIG_DIR, own_dir()) if folder is not None])
    explicit = _known(given, strategy, problems)
    for name in whole_options(explicit):
        # A mapping given whole is meant whole: a preset's entries would stay in it without a word.
        values["task"].pop(name, None)
    overlay(values, nest(explicit))
    problems += follow(values, settings, {entry.key: entry for entry in explicit}, strategy)
    problems += _steps_or_epochs(values, explicit)
    k_by_hand = any(entry.key == "k" for entry in explicit)
    if values.get("k") == "auto" and strategy != DEFAULT and not k_by_hand:
        # A preset that leaves K open asks CLoVE to find it. The others are given the truth, as in the paper's
        # comparisons; whoever types k=auto for them is told that they cannot find it.
        # Where nobody knows it, they get the largest number that CLoVE would look for.
        known = values["task"].get("num_clusters", TaskConfig.num_clusters)
        values["k"] = known or values.get("k_max", Config.k_max)
    problems += start_of_folds(values, {entry.key: entry for entry in explicit})
    if values.get("k") == "auto" and (names := _following_k(values)):
        how = "give k an integer, or values of their own to those keys"
        problems.append(f"k=auto: {preset} makes {', '.join(names)} from k; {how}.")
        raise ConfigError(problems)
    resolved = _resolve(values)
    spell_out(resolved["task"], typed)
    if not trust:
        # What stands in ${...} has its value only now; a file that was chosen with task= or train= counts as well.
        require_trust(preset, _not_typed(resolved, typed))
    if settings.grows and not k_by_hand:
        # Whoever looks for groups does not know their number; a preset's is for those that cannot.
        resolved["k"] = "auto"
    config, wrong = checked_config(resolved)
    problems += wrong
    if config is not None and not any(line.startswith("num_clients=") for line in wrong):
        problems += _idle_count(config, explicit)
    if config is None or problems:
        raise ConfigError(problems)
    return _with_length(config)


def _not_typed(values: Mapping[str, Any], typed: Collection[str]) -> dict[str, str]:
    """Return the import paths among values, by key, that stand in a preset's files and not on the command line."""
    return {key: path for key, path in import_paths(values).items() if key not in typed}


def _with_length(config: Config) -> Config:
    """Return the configuration with the length of a cosine schedule: a run that is extended must not change it."""
    if config.train.schedule != "cosine" or config.train.schedule_rounds is not None:
        return config
    rounds = config.strategy.settings.first_rounds + config.num_rounds
    return dataclasses.replace(config, train=dataclasses.replace(config.train, schedule_rounds=rounds))


def _twice(given: Sequence[Given]) -> list[str]:
    """Return a problem for each key that was given two values, once by its short name."""
    found: dict[str, Given] = {}
    problems = []
    for entry in given:
        earlier = found.setdefault(entry.key, entry)
        if earlier is not entry and earlier.value != entry.value:
            problems.append(f"{entry.key}: given twice with two values, {earlier.text} and {entry.text}; keep one.")
    return problems


def _following_k(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys whose values are made from k."""
    keys = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            keys += _following_k(value, f"{prefix}{name}.")
        elif isinstance(value, str) and "${k}" in value:
            keys.append(f"{prefix}{name}")
    return keys


def _compose_groups(groups: Mapping[str, str]) -> dict[str, Any]:
    """Compose config.yaml with the chosen groups, once for as long as no file in conf/ changes."""
    # The caller changes what it is given.
    own = own_dir()
    files = _times(str(CONFIG_DIR)) + (() if own is None else _times(str(own)))
    return copy.deepcopy(_through_hydra(tuple(groups.items()), files, own))


def _times(folder: str) -> tuple[tuple[str, int], ...]:
    """Return the path of every file of a folder and when it was last changed."""
    return tuple(sorted((entry.path, entry.stat().st_mtime_ns) for entry in files_below(folder)))


# Hydra takes 0.15 s for what every job of a sweep has in common.
@lru_cache(maxsize=128)
def _through_hydra(
    groups: tuple[tuple[str, str], ...], _files: tuple[tuple[str, int], ...], own: Path | None
) -> dict[str, Any]:
    """Compose config.yaml with the chosen groups; an error of Hydra's means a faulty file in conf/."""
    saved = GlobalHydra.instance().hydra
    # Hydra refuses to be initialised twice; inside a sweep's job the outer one must survive this call.
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            search = [] if own is None else [f"hydra.searchpath=[{quote(f'file://{own}')}]"]
            composed = hydra_compose("config", [*search, *(f"{group}={value}" for group, value in groups)])
        values: Any = OmegaConf.to_container(composed, resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        where = f"{CONFIG_DIR}" if own is None else f"{CONFIG_DIR} and {own}"
        raise ConfigError([f"the files in {where} do not compose: {error}"]) from error
    finally:
        GlobalHydra.instance().hydra = saved
    values["experiment"] = dict(groups).get("experiment", Config.experiment)
    return {name: {} if value is None else value for name, value in values.items()}


def _own_keys(
    own: Mapping[str, Any], strategy: str, preset: str, problems: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a preset has for the chosen strategy, its settings and keys of the run; that of all is checked."""
    for name, settings in own.items():
        if name not in STRATEGIES:
            problems.append(f"{preset}: for_strategy.{name}: no such strategy.{did_you_mean(name, STRATEGIES)}")
            continue
        for key in settings:
            if not {f"strategy.{key}", key} & {*known_keys(name)}:
                problems.append(f"{preset}: for_strategy.{name}.{key}: {_no_such_key(f'strategy.{key}', name)}")
    chosen, settings_only = own.get(strategy, {}), {f.name for f in dataclasses.fields(settings_type(strategy))}
    of_run = {key for key in chosen if key not in settings_only and key in known_keys(strategy)}
    return (
        {key: value for key, value in chosen.items() if key not in of_run},
        {key: value for key, value in chosen.items() if key in of_run},
    )


def _check_preset(values: Mapping[str, Any], strategy: str, preset: str, problems: list[str]) -> None:
    known = {*known_keys(strategy), "strategy.name"}
    for key, _ in dotted(values):
        if key not in known and not is_option(key):
            problems.append(f"{preset}: {key}: {_no_such_key(key, strategy)}")


def _known(given: Sequence[Given], strategy: str, problems: list[str]) -> list[Given]:
    """Return the explicit keys that the schema has; the others become problems."""
    known, keys = [], set(known_keys(strategy))
    for entry in given:
        if entry.key in (*GROUPS, "strategy"):
            continue
        if entry.key == "strategy.name":
            problems.append(f"{entry.text}: choose a strategy with strategy=<name>.")
        elif entry.key in keys or is_option(entry.key):
            known.append(entry)
        else:
            problems.append(f"{entry.text}: {_no_such_key(entry.key, strategy)}")
    return known


def _idle_count(config: Config, explicit: Sequence[Given]) -> list[str]:
    """Refuse a number of clients by hand where `min_clients` alone counts."""
    given = next((entry for entry in explicit if entry.key == "num_clients"), None)
    if given is None or config.task.partition != OWN or config.min_clients is None:
        return []
    return [
        f"{given.text}: has no effect beside min_clients={config.min_clients}: with task.partition=own every node "
        f"that comes takes part (in process: every folder in data_dir). Use min_clients={config.num_clients} for the "
        "least number to start with, or leave it out."
    ]


def _steps_or_epochs(values: dict[str, Any], explicit: Sequence[Given]) -> list[str]:
    """Let epochs given by hand win over a preset's steps; refuse both by hand."""
    given = {entry.key: entry.text for entry in explicit}
    epochs, steps = given.get("train.local_epochs"), given.get("train.local_steps")
    if epochs is None:
        return []
    if steps is None:
        values.get("train", {}).pop("local_steps", None)
        return []
    return [f"{steps}: says with {epochs} twice how long a client trains; leave out one of them."]


def _no_such_key(key: str, strategy: str) -> str:
    """Return why a key is not there and what to do, in words."""
    owners = [name for name in STRATEGIES if key in known_keys(name)]
    if owners:
        either = " or ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
        return f"strategy {strategy} has no such key; leave it out, or use strategy={either}."
    hint = did_you_mean(key, [*GROUPS, "strategy", *known_keys(strategy)]) or did_you_mean(key, SHORT)
    return f"there is no such key.{hint or ' florets --help lists them.'}"


def _refers(value: Any) -> bool:
    """Return whether a string in nested values refers to a key or to an environment variable."""
    if isinstance(value, Mapping):
        return any(map(_refers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_refers, value))
    return isinstance(value, str) and "${" in value


def _read_yaml(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return loaded


def _resolve(values: Mapping[str, Any]) -> dict[str, Any]:
    # OmegaConf would take a third of the time that composing takes.
    if not _refers(values):
        return dict(values)
    try:
        resolved: Any = OmegaConf.to_container(OmegaConf.create(dict(values)), resolve=True)
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError([f"{reason}: what stands in ${{...}} must be a key or an environment variable."]) from error
    return dict(resolved)
