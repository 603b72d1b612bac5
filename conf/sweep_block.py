"""Sweep block of a preset: keys with several values, over which `florets -m experiment=<preset>` runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Glob, Override

from florets.conf.compose import choices, preset_values
from florets.conf.consent import IMPORTING, TRUST, require_trust
from florets.conf.libraries import is_short
from florets.conf.overrides import parse
from florets.conf.problems import ConfigError
from florets.conf.typed import show

BLOCK = "sweep"


def sweep_block(experiment: str) -> dict[str, str]:
    """Return the sweep of a preset by key, each value as on the command line; empty where it has none.

    Raises
    ------
    ConfigError
        If the block is no mapping of keys to a value, or to a list of them.
    """
    block = preset_values(experiment).get(BLOCK, {})
    if not isinstance(block, Mapping):
        raise ConfigError([f"preset {experiment}: {BLOCK}: must be a mapping of keys to their values."])
    problems = [
        f"preset {experiment}: {BLOCK}.{key}: must be a value or a list of them; put a mapping in quotes."
        for key, value in block.items()
        if any(isinstance(one, Mapping | list) for one in _values(value))
    ]
    if problems:
        raise ConfigError(problems)
    return {str(key): ",".join(map(show, _values(value))) for key, value in block.items()}


def with_block(overrides: Sequence[str]) -> tuple[list[str], bool]:
    """Return the overrides of a sweep with those of its preset's block, and whether there is one.

    What is given by hand wins, key by key. The preset's own name goes where the block sweeps over presets.

    Raises
    ------
    ConfigError
        If a block is faulty, or a preset that has one is given beside others.
    """
    # What cannot be read is refused by whoever runs the sweep.
    given = {override.key_or_group: override for override in parse(overrides, [])}
    named = given.get("experiment")
    names = [name for name in _names(named) if name in choices("experiment")]
    blocks = {name: block for name in names if (block := sweep_block(name))}
    if named is None or not blocks:
        return list(overrides), False
    if len(_names(named)) > 1:
        raise ConfigError(
            [f"{named.input_line}: {', '.join(blocks)} is a sweep of its own (its block `{BLOCK}`); name it alone."]
        )
    (block,) = blocks.values()
    texts = {override.key_or_group: str(override.input_line) for override in given.values()}
    if "experiment" in block:
        del texts["experiment"]
    if TRUST in block:
        raise ConfigError(
            [f"preset {next(iter(blocks))}: {BLOCK}.{TRUST}: is given on the command line alone; leave it out."]
        )
    if not any(override.value() is True for key, override in given.items() if key == TRUST):
        # From here on they stand beside what was typed.
        importing = {key: value for key, value in block.items() if key not in given and key in IMPORTING}
        paths = {key: value for key, value in importing.items() if ":" in value and not is_short(value)}
        require_trust(f"preset {next(iter(blocks))}: its block `{BLOCK}`", paths)
    merged = {key: texts.pop(key, f"{key}={value}") for key, value in block.items()}
    return [*texts.values(), *merged.values()], True


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names(override: Override | None) -> list[str]:
    # Globs are refused by whoever runs the sweep.
    if override is None or isinstance(override.value(), Glob):
        return []
    if override.is_discrete_sweep():
        return list(override.sweep_string_iterator())
    return [override.get_value_element_as_str()]
