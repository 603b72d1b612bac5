"""A run of no work for the tests of `florets reproduce`: its results follow from strategy and seed."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from florets.conf.saved import results_folder
from florets.conf.schema import Config, as_plain
from florets.reports.summary import RunSummary, round_line
from tests.results_examples import NO_ROUNDS, report

ACCURACIES = {"clove": 0.90, "ifca": 0.80, "fedavg": 0.70}


def line(number: int, config: Config) -> str:
    seconds = {"train": 0.3, "cluster": 0.1, "total": 0.5}
    groups = 3 if config.seed == 1 else config.task.num_clusters
    sent = {"bytes_down": 500_000, "bytes_up": 250_000, "evaluations": {}}
    made = round_line(report(number, seconds=seconds, num_clusters=groups, **sent), {})
    found = {"accuracy": 0.3 * number, "ari": 0.5 * number, "ari_participants": 0.5 * number}
    return json.dumps({**made, **found}) + "\n"


def summary_of(config: Config, folder: Path) -> RunSummary:
    right = config.seed != 1
    return dataclasses.replace(
        NO_ROUNDS,
        experiment=config.experiment,
        strategy=config.strategy.name,
        seed=config.seed,
        rounds=2,
        final_accuracy=ACCURACIES[config.strategy.name] + 0.01 * config.seed * (config.strategy.name == "clove"),
        final_loss=0.5,
        final_ari=1.0 if right else 0.5,
        ari_at_10=None,
        first_round_ari_90=2 + config.seed if right else None,
        round_of_stability=None,
        bytes_down=1_000_000,
        bytes_up=500_000,
        seconds=1.0,
        folder=str(folder),
        final_validation=config.train.learning_rate if config.task.validation_fraction else None,
    )


def begin(config: Config, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rounds.jsonl").write_text(line(1, config))
    (folder / "config.yaml").write_text(yaml.safe_dump(as_plain(config)))


def end(config: Config, folder: Path) -> RunSummary:
    summary = summary_of(config, folder)
    (folder / "rounds.jsonl").write_text(line(1, config) + line(2, config))
    (folder / "summary.json").write_text(summary.to_json())
    (folder / "report.html").write_text("")
    return summary


def run(config: Config, overrides: Sequence[str]) -> RunSummary:
    folder = results_folder(config, overrides)
    assert folder.name == f"seed-{config.seed}"
    begin(config, folder)
    if config.strategy.name == "ifca" and config.seed == 2:
        # What memory that ran out does to a process.
        os._exit(9)
    summary = end(config, folder)
    if config.strategy.name == "ifca" and config.seed == 1:
        # The run is whole, and nobody was told.
        os._exit(9)
    return summary


def resume(config: Config, folder: Path) -> RunSummary:
    return dataclasses.replace(end(config, folder), rounds=2)
