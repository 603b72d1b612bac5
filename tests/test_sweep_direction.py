"""Sweepers that optimise: an accuracy is maximised, a loss minimised, without a further key."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.results.summary import RunSummary
from florets.server_app.sweep import launch as sweep
from florets.server_app.sweep.sweep_direction import direction
from florets.server_app.sweep.sweep_keys import read_sweep
from tests.test_command import summary_of

OPTUNA = ["hydra/sweeper=optuna"]


@pytest.mark.parametrize(
    ("overrides", "for_hydra", "expected"),
    [
        (["seed=0,1"], OPTUNA, ["hydra.sweeper.direction=maximize"]),
        (["experiment=clove/linear"], OPTUNA, []),
        (["task=digits,mnist"], ["hydra/sweeper=ax"], ["hydra.sweeper.ax_config.experiment.minimize=false"]),
        ([], ["hydra/sweeper=nevergrad"], ["hydra.sweeper.optim.maximize=true"]),
        # Nothing is optimised, nothing is known of the sweeper, or the user has said it.
        (["seed=0,1"], ["hydra/launcher=joblib"], []),
        (["seed=0,1"], ["hydra/sweeper=basic"], []),
        (["seed=0,1"], [*OPTUNA, "hydra.sweeper.direction=minimize"], []),
        # Of an interval the start is looked at, and a combination that cannot run tells nothing.
        (["train.learning_rate=tag(log,interval(0.001,0.1))"], OPTUNA, ["hydra.sweeper.direction=maximize"]),
        (["strategy=fedavg,clove", "strategy.memory=true"], OPTUNA, ["hydra.sweeper.direction=maximize"]),
        (["experiment=clove/linear,nosuch"], OPTUNA, []),
    ],
)
def test_the_direction_follows_from_what_the_jobs_end_with(overrides, for_hydra, expected):
    assert direction(read_sweep(overrides), for_hydra) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=quickstart,clove/linear"], "some of these jobs end with an accuracy and others with a loss"),
        (["strateggy=clove", "seed=0,1"], "strateggy=clove: there is no such key"),
    ],
)
def test_jobs_that_cannot_be_compared_or_cannot_run_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        direction(read_sweep(overrides), OPTUNA)


def test_hydra_is_told_the_direction(monkeypatch, tmp_path):
    told: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "_run_hydra", lambda overrides, _: told.append(list(overrides)))
    main(["-m", "seed=0,1", *OPTUNA])
    assert told == [["++seed=0,1", *OPTUNA, "hydra.sweeper.direction=maximize"]]


# Optuna 2, which the plugin needs, warns of its own old names.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("experiment", "best"), [("quickstart", 3), ("clove/linear", 0)])
def test_optuna_finds_the_highest_accuracy_and_the_lowest_loss(monkeypatch, tmp_path: Path, experiment, best):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper is not installed")

    def run(config: Config, _: Sequence[str]) -> RunSummary:
        accuracy = config.seed / 10 if experiment == "quickstart" else None
        return dataclasses.replace(summary_of(config, accuracy=accuracy), final_loss=config.seed / 10)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("florets.server_app.engine.run", run)
    grid = ["hydra/sweeper/sampler=grid", "hydra.sweeper.n_jobs=1"]
    assert main(["-m", f"experiment={experiment}", "seed=1,3,0,2", *OPTUNA, *grid]) == 0
    (found,) = tmp_path.rglob("optimization_results.yaml")
    assert yaml.safe_load(found.read_text())["best_value"] == best / 10


@pytest.mark.filterwarnings("default")
def test_a_failed_job_is_a_failed_trial_of_optunas(monkeypatch, tmp_path: Path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper is not installed")

    def run(config: Config, _: Sequence[str]) -> RunSummary:
        ran.append(config.seed)
        if len(ran) == 2:
            raise RuntimeError("the second trial")
        return summary_of(config, accuracy=config.seed / 10)

    ran: list[int] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("florets.server_app.engine.run", run)
    study = ["hydra/sweeper/sampler=random", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=1"]
    assert main(["-m", "seed=range(0,9)", *OPTUNA, *study, "hydra.sweeper.max_failure_rate=1"]) == 1
    (found,) = tmp_path.rglob("optimization_results.yaml")
    assert yaml.safe_load(found.read_text())["best_value"] == max(ran[0], *ran[2:]) / 10
