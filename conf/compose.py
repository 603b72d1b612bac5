"""From what a user typed to one checked `Config`: schema < preset < explicit key, with all problems in one error."""

import dataclasses
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from florets.conf.consent import TRUST, import_paths, read_trust, require_trust
from florets.conf.overrides import (
    SHORT,
    Given,
    is_option,
    nest,
    overlay,
    read_overrides,
    with_full_names,
)
from florets.conf.presets import GROUPS, choices, preset_values, read_file
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import OPTION_KEYS, OWN, Config, known_keys, read_strategy, show, words_of
from florets.conf.validate import checked_config
from florets.strategies import STRATEGIES
from florets.strategies.registry import DEFAULT, find_strategy
from florets.strategies.settings import Settings
from florets.task.keys import type_hints
from florets.task.registry import reads_files
from florets.task.settings import PLAIN_LOSSES, TableConfig, TaskConfig
from florets.task.training.settings import OF_STEPS

OWN_DATA = "own_data"
"""Preset of nodes with data of their own: who names tables' columns, or a folder and no data, means it."""

CHOICES = ("averaging", "first_round", "choose_k", "loss_data", "personal")
"""Run-level keys that a strategy may not follow: a preset's value is then neutral, an explicit one refused."""
GRADIENTS_ONLY = {"gradient_batch": None, "server_optimizer": "sgd"}
"""Keys that say how gradients are averaged, and their values where they say nothing."""

NODES_OWN = (
    "has no effect on real nodes, each of which reads the folder in its node config (data-dir). "
    f"Use experiment={OWN_DATA} in its place."
)
_AGREED = (("data_options", "classes"), ("partition_options", "input_shape"))


def compose(overrides: Sequence[str]) -> Config:
    """Return the checked experiment that `key=value` texts describe; ConfigError has every problem."""
    problems: list[str] = []
    given = with_full_names(read_overrides(overrides, problems), problems)
    trust = any(read_trust(entry.value, entry.text, problems) for entry in given if entry.key == TRUST)
    given = [entry for entry in given if entry.key != TRUST]
    groups = _groups(given, problems)
    values = preset_values(groups.pop("experiment", Config.experiment), groups)
    preset = f"preset {values['experiment']}"
    typed = {entry.key: entry for entry in given}

    own_keys = values.get("strategy", DEFAULT)
    values["strategy"] = dict(own_keys) if isinstance(own_keys, Mapping) else {"name": own_keys}
    if not trust:
        # It is imported at once; the rest is looked at when it is resolved.
        require_trust(preset, _not_typed({"strategy": values["strategy"]}, typed))
    name = show(typed["strategy"].value) if "strategy" in typed else str(values["strategy"].get("name", DEFAULT))
    settings = read_strategy(name, problems)
    if settings is None:
        # Without the strategy every further problem would be a guess.
        raise ConfigError(problems)
    strategy = values["strategy"]["name"] = find_strategy(name).id
    _take_own_keys(values, strategy, settings, preset)
    for group, file in groups.items():
        # The preset was laid over the file that was chosen by hand; what is given by hand wins.
        overlay(values, {group: read_file(group, file)})

    explicit = {entry.key: entry for entry in _known(given, strategy, problems)}
    for key in OPTION_KEYS:
        if key in explicit and key.startswith("task."):
            # A mapping given whole is meant whole: a preset's entries would stay in it without a word.
            values["task"].pop(key.removeprefix("task."), None)
    overlay(values, nest({key: entry.value for key, entry in explicit.items()}))
    problems += follow(values, settings, explicit, strategy)
    problems += _steps_or_epochs(values, explicit)
    problems += _solver(values, explicit)
    if values.get("k") == "auto" and strategy != DEFAULT and "k" not in explicit:
        # A preset that leaves K open asks CLoVE to find it. The others are given the truth, as in the paper's
        # comparisons; with k=auto they are refused.
        # Where nobody knows it, they get the largest number that CLoVE would look for.
        known = values["task"].get("num_clusters", TaskConfig.num_clusters)
        values["k"] = known or values.get("k_max", Config.k_max)
    if values.get("k") == "auto" and values.get("choose_k") == "folds":
        # The round that finds K by updates on folds starts from updates.
        first = explicit.get("first_round")
        if first is not None and first.value not in (None, "update"):
            problems.append(
                f"{first.text}: choose_k=folds finds K in a round of updates (first_round=update); leave it out."
            )
        values["first_round"] = "update"
    _listed(values["task"])
    values["task"]["table"] = _with_preprocessing(values["task"].get("table", {}), problems)
    if not trust:
        # A file that was chosen with task= or train= counts as well.
        require_trust(preset, _not_typed(values, typed))
    if settings.grows and "k" not in explicit:
        # Whoever looks for groups does not know their number; a preset's is for those that cannot.
        values["k"] = "auto"
    config, wrong = checked_config(values)
    problems += wrong
    if config is not None:
        problems += _idle(config, explicit)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def _groups(given: Sequence[Given], problems: list[str]) -> dict[str, str]:
    """Return the files of conf/ that were chosen by hand; raise ConfigError where one does not exist."""
    groups = {entry.key: str(entry.value) for entry in given if entry.key in GROUPS}
    keys = {entry.key for entry in given}
    # The quickstart's digits are in no folder and no table.
    has_none = keys.isdisjoint(("task", "task.data"))
    if has_none and any(key == "data_dir" or key.startswith("task.table.") for key in keys):
        groups.setdefault("experiment", OWN_DATA)
    # Only nodes with tables of their own have these: by its full name an owner's column may be of one table for all.
    if any(entry.text.partition("=")[0] in (*SHORT, "task.table.preprocessing") for entry in given):
        groups.setdefault("experiment", OWN_DATA)
    wrong = []
    for entry in given:
        if entry.key in GROUPS and entry.value not in (names := choices(entry.key)):
            hint = did_you_mean(str(entry.value), names)
            kind = "preset of train" if entry.key == "train" else entry.key
            wrong.append(f"{entry.text}: there is no such {kind}.{hint} There are: {', '.join(names)}.")
    if wrong:
        # Without the preset every further problem would be a guess.
        raise ConfigError(problems + wrong)
    return groups


def _not_typed(values: Mapping[str, Any], typed: Collection[str]) -> dict[str, str]:
    """Return the import paths among values, by key, that stand in a preset's files and not on the command line."""
    return {key: path for key, path in import_paths(values).items() if key not in typed}


def _take_own_keys(values: dict[str, Any], strategy: str, settings: type[Settings], preset: str) -> None:
    """Lay a preset's block `for_strategy` over its values, in place; raise ConfigError where it names no strategy."""
    blocks = values.pop("for_strategy", {})
    if unknown := [name for name in blocks if name not in STRATEGIES]:
        hint = did_you_mean(unknown[0], STRATEGIES)
        raise ConfigError(f"{preset}: for_strategy.{unknown[0]}: no such strategy.{hint}")
    own_names = {field.name for field in dataclasses.fields(settings)}
    own = blocks.get(strategy, {})
    overlay(values, nest({f"strategy.{key}" if key in own_names else key: value for key, value in own.items()}))


def _known(given: Sequence[Given], strategy: str, problems: list[str]) -> Iterator[Given]:
    """Yield the explicit keys that the schema has; the others become problems."""
    keys = set(known_keys(strategy))
    for entry in given:
        if entry.key in (*GROUPS, "strategy"):
            continue
        if entry.key == "strategy.name":
            problems.append(f"{entry.text}: choose a strategy with strategy=<name>.")
        elif entry.key in keys or is_option(entry.key):
            yield entry
        else:
            problems.append(f"{entry.text}: {_no_such_key(entry.key, strategy)}")


def follow(
    values: dict[str, Any], settings: type[Settings], explicit: Mapping[str, Given], strategy: str
) -> list[str]:
    """Resolve the run-level choices for a strategy, in place; return a line for each explicit one it cannot take."""
    problems, privacy = [], values.get("privacy") or {}
    noised = privacy.get("kind") == "central" and privacy.get("epsilon") not in (None, "inf", math.inf)
    for key in CHOICES:
        can, value = settings.follows.get(key, ()), values.get(key)
        if key in explicit and value is not None and value not in can:
            rule = f"takes only {' or '.join(can)}" if can else "has no such choice"
            if can and key == "choose_k" and values.get("k") != "auto":
                rule += ", with k=auto"
            # A value that another strategy takes is no slip of the keyboard.
            slip = value not in words_of(type_hints(Config)[key])
            hint = did_you_mean(show(value), can) if slip else ""
            problems.append(f"{explicit[key].text}: strategy {strategy} {rule}; leave it out.{hint}")
            # Whatever else is wrong with the value has been said by that.
            values[key] = None
        elif value not in can:
            # With noise, groups start from noised sums: `start_with` does the same for a strategy by itself.
            values[key] = "update" if key == "first_round" and noised and "update" in can else next(iter(can), None)
    # By hand they are refused, as keys that have no effect.
    idle = {} if values["averaging"] == "gradients" else dict(GRADIENTS_ONLY)
    if "loss_data" not in settings.follows:
        idle["loss_batch"] = None
    values.update({key: neutral for key, neutral in idle.items() if key not in explicit})
    return problems


def _idle(config: Config, explicit: Mapping[str, Given]) -> list[str]:
    """Refuse by hand a number of clients where `min_clients` alone counts, and a folder where data are in none."""
    given, folder = explicit.get("num_clients"), explicit.get("data_dir")
    if given is not None and config.task.partition == OWN and config.min_clients is not None:
        return [f"{given.text}: has no effect: all clients that have data take part; use min_clients in its place."]
    if folder is None:
        return []
    if config.superlink and config.task.partition == OWN:
        return [f"{folder.text}: {NODES_OWN}"]
    if reads_files(config.task.data) is not False:
        return []
    # The answer would be about other data.
    return [
        f"{folder.text}: has no effect on experiment={config.experiment}: task.data={config.task.data} reads no "
        f"files. Leave data_dir out of its command, or name other data: experiment={OWN_DATA} for your own, or "
        "task.data=<name>."
    ]


def _steps_or_epochs(values: dict[str, Any], explicit: Mapping[str, Given]) -> list[str]:
    """Let epochs given by hand win over a preset's steps; refuse both by hand."""
    epochs, steps = explicit.get("train.local_epochs"), explicit.get("train.local_steps")
    if epochs is not None and steps is not None:
        return [f"{steps.text}: says with {epochs.text} twice how long a client trains; leave out one of them."]
    if epochs is not None:
        values.get("train", {}).pop("local_steps", None)
    return []


def _solver(values: dict[str, Any], explicit: Mapping[str, Given]) -> list[str]:
    """Let typed keys of gradient steps win over a preset's Newton steps; refuse what the solver never reads."""
    train, solver = values.get("train", {}), explicit.get("train.solver")
    ridge = explicit.get("train.ridge")
    own = [entry for key, entry in explicit.items() if key.startswith("train.") and key.split(".")[1] in OF_STEPS]
    if train.get("solver") == "newton" and own:
        if solver is not None:
            return [f"{own[0].text}: is of gradient steps, and {solver.text} takes none; leave out one of them."]
        train["solver"] = "sgd"
    if solver is None and values.get("task", {}).get("loss", "cross_entropy") not in PLAIN_LOSSES:
        train["solver"] = "sgd"
    if ridge is not None and train.get("solver", "sgd") != "newton":
        remedy = f"and {own[0].text} of gradient steps; leave out one of them" if own else "add that, or leave it out"
        return [f"{ridge.text}: is of train.solver=newton, {remedy}."]
    return []


def _no_such_key(key: str, strategy: str) -> str:
    """Return why a key is not there and what to do, in words."""
    meant = f"strategy.{key.removeprefix('strategy.')}"
    owners = [name for name in STRATEGIES if meant in known_keys(name)]
    if owners and (meant == key or strategy not in owners):
        either = " or ".join(filter(None, [", ".join(owners[:-1]), owners[-1]]))
        if meant != key:
            return f"there is no such key. Did you mean {meant}, a key of strategy={either}?"
        return f"strategy {strategy} has no such key; leave it out, or use strategy={either}."
    hint = did_you_mean(key, [*GROUPS, "strategy", *known_keys(strategy)]) or did_you_mean(key, SHORT)
    return f"there is no such key.{hint or ' florets --help lists them.'}"


def _listed(task: dict[str, Any]) -> None:
    """Make a list of one of a value of the options that nodes agree on, in place."""
    for group, option in _AGREED:
        options = task.get(group)
        if isinstance(options, Mapping) and not isinstance(options.get(option, []), list | tuple | None):
            task[group] = {**options, option: [options[option]]}


def _with_preprocessing(table: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return what is declared of tables, with the content of the file that says how they are prepared."""
    given, key = table.get("preprocessing"), "task.table.preprocessing"
    if not given:
        return dict(table)
    # NumPy, which few runs need here.
    from florets.task.data.tables.preprocessing import Preprocessing

    try:
        values = json.loads(Path(given).expanduser().read_text("utf-8")) if isinstance(given, str) else given
        found = Preprocessing.of(values)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error).removesuffix(".")
        problems.append(f"{key}={show(given)[:200]}: {reason}; docs/tables.md has an example.")
        # Without the file every further problem would be a guess.
        raise ConfigError(problems) from None
    plain = dataclasses.asdict(TableConfig())
    follows = {
        "target": found.target,
        "columns": list(found.columns),
        "categorical": [column.name for column in found.categorical],
        "classes": {name: list(raws) for name, raws in found.classes.items()},
        "regression": found.is_regression or None,
    }
    problems += [
        f"task.table.{name}={show(table[name])}: {key} has {show(value)}; leave it out."
        for name, value in follows.items()
        if table.get(name, plain[name]) not in (plain[name], value)
    ]
    return {**table, **follows, "preprocessing": found.to_plain()}
