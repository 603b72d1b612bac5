"""Sweepers that optimise: by validation data alone, and in the right direction without a further key."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from florets.api.sweep import Sweep
from florets.commands.main import main
from florets.conf.schema import Config
from florets.reports.summary import RunSummary
from florets.studies.sweep.best import Best
from florets.studies.tune import tune_overrides
from tests.test_command import summary_of

ENGINE = "florets.engines.engine.run"
BY_ACCURACY = ["task.validation_fraction=0.2", "measure=accuracy"]


@pytest.mark.parametrize(
    ("overrides", "direction"),
    [
        (["k=interval(2,4)", *BY_ACCURACY], "maximize"),
        # The default measure is the loss.
        (["k=interval(2,4)"], "minimize"),
    ],
)
def test_the_direction_follows_from_the_validation_figure(overrides, direction):
    texts, trials = tune_overrides(overrides, None, 1)
    assert f"hydra.sweeper.direction={direction}" in texts
    assert trials == 20


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Run nothing: the validation accuracy is highest at k=3, the test accuracy at k=4; with k=5 a run fails."""
    monkeypatch.chdir(tmp_path)
    recorded: list[Config] = []

    def run(config: Config, *_: object) -> RunSummary:
        recorded.append(config)
        if config.k == 5:
            raise RuntimeError("five")
        found = summary_of(config, accuracy=config.k / 10 + config.seed / 100)
        return dataclasses.replace(found, final_validation={2: 0.5, 3: 0.9, 4: 0.6}[config.k])

    monkeypatch.setattr(ENGINE, run)
    return recorded


def best(root: Path) -> Best:
    (folder,) = (path.parent for path in root.rglob("summary.csv"))
    found = Sweep(folder).best
    assert found is not None
    return found


# Optuna 2, which the plugin needs, warns of its own old names.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*declarative_base:DeprecationWarning")
def test_optuna_chooses_by_validation_and_a_failed_job_is_a_failed_trial(ran, tmp_path: Path, capsys):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper is not installed")
    assert main(["tune", "k=interval(2,5)", "trials=12", *BY_ACCURACY]) == 1
    # Some of the settings were proposed again, which makes no second seed of them.
    assert len(ran) == 12
    (written,) = tmp_path.rglob("optimization_results.yaml")
    assert yaml.safe_load(written.read_text())["best_value"] == 0.9
    found = best(tmp_path)
    assert found.command == "k=3 task.validation_fraction=0.2 measure=accuracy"
    assert found.validation.mean == 0.9
    assert found.test["accuracy"].mean == pytest.approx(0.3)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Best of 3 settings by validation accuracy: k=3 task.validation_fraction=0.2")
    assert "(validation 90.0%, test accuracy 30.0%, test ARI 1.00)" in last


def test_a_grid_names_the_best_mean_over_the_seeds(ran, tmp_path: Path, capsys):
    assert main(["tune", "k=2,3,4", "seed=0,1", "measure=accuracy"]) == 0
    found = best(tmp_path)
    # Held out where nothing was said of it, and no seed: the setting was run with two.
    accuracy = found.test["accuracy"]
    assert (accuracy.mean, accuracy.deviation) == (pytest.approx(0.305), pytest.approx(0.01 / 2**0.5))
    said = capsys.readouterr().out
    assert ": k=3 measure=accuracy task.validation_fraction=0.2 (validation 90.0%" in said.splitlines()[-1]
    assert "Settings are chosen by validation data: task.validation_fraction=0.2." in said
