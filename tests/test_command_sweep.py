"""`florets -m` and `florets tune`: jobs, failures, the summary at the end, the best setting. The engine is a fake."""

import csv
import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from florets.api.sweep import Sweep
from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.reports.summary import RunSummary
from florets.studies.sweep.keys import decode, encode, expand, read_sweep
from florets.studies.sweep.report import Best
from florets.studies.tune import tune_overrides
from tests.test_command import summary_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Run nothing; a job with seed 13 fails, one with seed 99 is interrupted."""
    monkeypatch.chdir(tmp_path)
    recorded: list[Config] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        recorded.append(config)
        if config.seed == 13:
            raise RuntimeError("the 13th seed")
        if config.seed == 99:
            raise KeyboardInterrupt
        return summary_of(config, folder=str(tmp_path / f"run-{len(recorded)}"))

    monkeypatch.setattr("florets.engines.engine.run", run)
    return recorded


def sweep_folder(root: Path) -> Path:
    (folder,) = (root / "results" / "sweeps").iterdir()
    return folder


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "summary.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_runs_every_combination_and_ends_with_its_table(ran, tmp_path, capsys):
    assert main(["-m", "strategy=clove,ifca", "seed=0,1", "experiment=quickstart"]) == 0
    assert [(config.strategy.name, config.seed) for config in ran] == list(
        itertools.product(["clove", "ifca"], [0, 1])
    )
    out = capsys.readouterr().out
    folder = sweep_folder(tmp_path)
    assert out.startswith(f"Sweep of 4 jobs; its summary goes to {folder}\n")
    assert "[1/4] strategy=clove seed=0 experiment=quickstart\n      accuracy 98.5 %, ARI 1.00" in out
    assert "98.50 ± 0.00" in out
    assert out.endswith(f"Results of the sweep: {folder}\n")
    assert [(row["strategy"], row["seed"]) for row in rows(folder)] == [
        (strategy, str(seed)) for strategy, seed in itertools.product(["clove", "ifca"], range(2))
    ]
    assert (folder / "summary.md").is_file()


@pytest.mark.slow
def test_a_job_that_fails_is_recorded_and_the_others_go_on(ran, tmp_path, capsys):
    assert main(["-m", "seed=0,13,1"]) == 1
    assert [config.seed for config in ran] == [0, 13, 1]
    out = capsys.readouterr().out
    assert "1 of 3 jobs failed" in out
    # The engine stands in for code of the reader's, of which the line is named.
    assert re.search(
        r"RuntimeError: the 13th seed \(raised in run \(.*, line \d+\)\) \(traceback: job-2-traceback\.txt\)", out
    )
    folder = sweep_folder(tmp_path)
    assert [bool(row["error"]) for row in rows(folder)] == [False, True, False]
    assert "in run" in (folder / "job-2-traceback.txt").read_text()


@pytest.mark.parametrize(
    ("overrides", "wrong"),
    [
        (["strategy=ifka,ifc"], ["strategy=ifka: no such strategy"]),
        (["seed=0,1", "train.learning_rate=high,-1"], ["train.learning_rate=high", "train.learning_rate=-1.0"]),
    ],
)
def test_a_sweep_of_which_no_job_can_run_ends_the_sweep_before_it_begins(ran, tmp_path, capsys, overrides, wrong):
    assert main(["-m", *overrides]) == 2
    said = capsys.readouterr().err
    for text in wrong:
        assert said.count(text) == 1
    assert ran == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=0,1", "seed=2"], "seed: given twice, seed=0,1 and seed=2; separate the values"),
        (["tracker=tensorboard,mlflow"], "replace each other; all at once are tracker=[tensorboard,mlflow]"),
        (["seed=0,1", "hydra/launcher=nope"], "Hydra cannot start the sweep: "),
    ],
)
def test_a_sweep_that_cannot_start_says_why(ran, tmp_path, capsys, overrides, message):
    (tmp_path / "taken").write_text("a file")
    assert main(["-m", *overrides]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert ran == []


def test_a_choice_and_a_key_of_the_same_group_do_not_meet_in_hydra():
    parsed = read_sweep(["strategy=clove,ifca", "strategy.init=same,different", "task=mnist", "seed=range(0,2)"])
    encoded = [encode(override) for override in parsed]
    assert encoded[0] == "++strategy.choice=clove,ifca"
    assert [decode(text) for text in encoded] == [override.input_line for override in parsed]
    jobs_of_it = list(expand(parsed))
    assert len(jobs_of_it) == 8
    assert jobs_of_it[1] == ["strategy=clove", "strategy.init=same", "task=mnist", "seed=1"]


def test_a_column_keeps_its_blank_in_a_job():
    for (text,) in expand(read_sweep(["target=Diagnosis Label,'400'"])):
        assert compose([text]).task.table.target in ("Diagnosis Label", "400")


@pytest.mark.slow
def test_jobs_in_other_processes_report_by_files(tmp_path, monkeypatch, capsys):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # FedAvg has no such key: its jobs fail, the others go on.
    overrides = ["seed=0,1", "strategy=clove,fedavg", "strategy.memory=true", "num_rounds=1"]
    overrides += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    assert main(["-m", *overrides]) == 1
    folder = sweep_folder(tmp_path)
    assert [bool(row["error"]) for row in rows(folder)] == [False, True, False, True]
    assert "2 of 4 jobs failed" in capsys.readouterr().out


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
def tuned(monkeypatch, tmp_path):
    """Run nothing: the validation accuracy is highest at k=3, the test accuracy at k=4; with k=5 a run fails."""
    monkeypatch.chdir(tmp_path)
    recorded: list[Config] = []

    def run(config: Config, *_: object) -> RunSummary:
        recorded.append(config)
        if config.k == 5:
            raise RuntimeError("five")
        found = summary_of(config, accuracy=config.k / 10 + config.seed / 100)
        return dataclasses.replace(found, final_validation={2: 0.5, 3: 0.9, 4: 0.6}[config.k])

    monkeypatch.setattr("florets.engines.engine.run", run)
    return recorded


def best(root: Path) -> Best:
    (folder,) = (path.parent for path in root.rglob("summary.csv"))
    found = Sweep(folder).best
    assert found is not None
    return found


# Optuna 2, which the plugin needs, warns of its own old names.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*declarative_base:DeprecationWarning")
def test_optuna_chooses_by_validation_and_a_failed_job_is_a_failed_trial(tuned, tmp_path: Path, capsys):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper is not installed")
    assert main(["tune", "k=interval(2,5)", "trials=12", *BY_ACCURACY]) == 1
    # Some of the settings were proposed again, which makes no second seed of them.
    assert len(tuned) == 12
    (written,) = tmp_path.rglob("optimization_results.yaml")
    assert yaml.safe_load(written.read_text())["best_value"] == 0.9
    found = best(tmp_path)
    assert found.command == "k=3 task.validation_fraction=0.2 measure=accuracy"
    assert found.validation.mean == 0.9
    assert found.test["accuracy"].mean == pytest.approx(0.3)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Best of 3 settings by validation accuracy: k=3 task.validation_fraction=0.2")
    assert "(validation 90.0%, test accuracy 30.0%, test ARI 1.00)" in last


def test_a_grid_names_the_best_mean_over_the_seeds(tuned, tmp_path: Path, capsys):
    assert main(["tune", "k=2,3,4", "seed=0,1", "measure=accuracy"]) == 0
    found = best(tmp_path)
    # Held out where nothing was said of it, and no seed: the setting was run with two.
    accuracy = found.test["accuracy"]
    assert (accuracy.mean, accuracy.deviation) == (pytest.approx(0.305), pytest.approx(0.01 / 2**0.5))
    said = capsys.readouterr().out
    assert ": k=3 measure=accuracy task.validation_fraction=0.2 (validation 90.0%" in said.splitlines()[-1]
    assert "Settings are chosen by validation data: task.validation_fraction=0.2." in said
