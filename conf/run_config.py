"""The three ways a configuration travels: Flower's flat run config, one JSON text, and the task's description."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from florets.conf.overrides import parse_overrides_string, quote
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import Config, as_plain
from florets.conf.validate import checked_config
from florets.task.settings import TableConfig

_RENAMED = {
    "num-server-rounds": "num_rounds",
    "learning-rate": "train.learning_rate",
    "local-epochs": "train.local_epochs",
    "batch-size": "train.batch_size",
    "fraction-train": "strategy.fraction_train",
}
_AS_THEY_ARE = (
    *("experiment", "strategy", "seed", "k", "k-max", "num-clients", "data-dir", "results-dir", "device"),
    *("eval-every", "quiet", "start-timeout", "round-timeout", "min-clients", "quorum"),
)
# Flower's names on the left, because that is what its users type; ours on the right.
_KEYS = {name: name.replace("-", "_") for name in _AS_THEY_ARE} | _RENAMED

_PLAIN_TABLE = TableConfig()


def run_config_overrides(run_config: Mapping[str, Any]) -> list[str]:
    """Return the overrides that a Flower run config stands for; `overrides` is split and comes first.

    A key that the app declares always arrives: -1 of a number and an empty text mean the experiment's own value.
    """
    # But for the overrides these are other ways in.
    known = [*_KEYS, "overrides", "config-json", "run-folder", "resume", "advise"]
    unknown = [name for name in run_config if name not in known]
    if unknown:
        raise ConfigError(
            [f"{name}: there is no such key in the run config.{did_you_mean(name, known)}" for name in unknown]
        )
    overrides = parse_overrides_string(str(run_config.get("overrides", "")))
    for name, ours in _KEYS.items():
        value = run_config.get(name, "")
        if value not in (-1, ""):
            overrides.append(f"{ours}={quote(value)}")
    return overrides


def config_to_json(config: Config) -> str:
    """Return the whole configuration as one line of JSON with sorted keys."""
    return json.dumps(as_plain(config), sort_keys=True)


def config_from_json(text: str) -> Config:
    """Return the configuration that `config_to_json` wrote, checked anew; ConfigError where it is none."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"config-json: is not JSON ({error}); leave it empty and use overrides.") from None
    if not isinstance(values, dict):
        raise ConfigError("config-json: must be a JSON object; leave it empty and use overrides.")
    config, problems = checked_config(values)
    if config is None or problems:
        raise ConfigError([f"config-json: {problem}" for problem in problems])
    return config


def task_spec(config: Config) -> dict[str, Any]:
    """Return the fields of the task's description, as `florets.task.task.TaskSpec` takes them."""
    fields = dataclasses.asdict(config.task)
    if not config.task.drift.rounds:
        # It travels with every message.
        fields["drift"] = {}
    options = fields.pop("adapter_options")
    fields["adapter"] = {} if config.task.adapter == "none" else options
    declared = {
        entry.name: fields["table"][entry.name]
        for entry in dataclasses.fields(TableConfig)
        if fields["table"][entry.name] != getattr(_PLAIN_TABLE, entry.name)
    }
    prepared = declared.pop("preprocessing", None)
    fields["table"] = ({"declared": declared} if declared else {}) | ({"prepared": prepared} if prepared else {})
    if ":" in config.measure:
        fields["measure"] = config.measure
    return {**fields, "num_clients": config.num_clients, "seed": config.seed, "data_dir": config.data_dir}
