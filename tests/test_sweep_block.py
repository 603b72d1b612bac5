"""Sweeps that a preset carries, and sweepers that optimise: by which figure and in which direction."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from florets.commands.main import main
from florets.conf.compose import choices, compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.conf.sweep_block import sweep_block, with_block
from florets.engines import engine
from florets.reports.summary import RunSummary
from florets.strategies import STRATEGIES
from florets.studies.sweep.jobs import JobResult
from florets.studies.sweep.keys import check_jobs, direction, expand, read_sweep
from florets.studies.sweep.report import summary_markdown
from florets.studies.tune import tune_overrides
from tests import fake_cells
from tests.test_command import summary_of

HEAD = (
    "# @package _global_\n# florets experiment={}\n# A preset of the tests.\ndefaults:\n  - override /task: digits\n"
)


@pytest.fixture
def conf(conf_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder conf/ with one preset that has a sweep; the working directory is beside it."""
    monkeypatch.chdir(conf_copy.parent)
    preset(conf_copy, "mine", "sweep: {seed: [0, 1], strategy: 'clove,fedavg'}\n")
    return conf_copy


def preset(conf: Path, name: str, text: str) -> None:
    (conf / "experiment" / f"{name}.yaml").write_text(HEAD.format(name) + text)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Strategy and seed of each run that was begun or gone on with, in order; they do no work."""
    told: list[str] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        told.append(f"{config.strategy.name} {config.seed}")
        if config.strategy.name == "ifca":
            fake_cells.begin(config, fake_cells.results_folder(config, overrides))
            raise RuntimeError("half way")
        return fake_cells.run(config, overrides)

    def resume(config: Config, folder: Path) -> RunSummary:
        told.append(f"{config.strategy.name} {config.seed} goes on")
        return fake_cells.resume(config, folder)

    monkeypatch.setattr(engine, "run", run)
    monkeypatch.setattr(engine, "resume", resume)
    monkeypatch.setattr("florets.studies.sweep.report._draw", lambda *_: None)
    return told


def test_the_block_gives_what_is_not_given_by_hand(conf: Path) -> None:
    assert sweep_block("mine") == {"seed": "0,1", "strategy": "clove,fedavg"}
    assert with_block(["experiment=mine"]) == (["experiment=mine", "seed=0,1", "strategy=clove,fedavg"], True)
    given = ["seed=7", "num_rounds=2", "experiment=mine"]
    assert with_block(given) == (["num_rounds=2", "experiment=mine", "seed=7", "strategy=clove,fedavg"], True)
    for without in (["experiment=quickstart", "seed=0,1"], ["seed=0,1"], ["experiment=nowhere"]):
        assert with_block(without) == (without, False)


def test_a_block_over_presets_puts_their_names_in_place_of_its_own(conf: Path) -> None:
    preset(conf, "both", "sweep: {experiment: [quickstart, digits_label_skew]}\n")
    assert with_block(["seed=1", "experiment=both"])[0] == ["seed=1", "experiment=quickstart,digits_label_skew"]
    assert compose(["experiment=both"]).experiment == "both"
    with pytest.raises(ConfigError, match=r"experiment=both,quickstart: both is a sweep of its own .* name it alone"):
        with_block(["experiment=both,quickstart"])


@pytest.mark.parametrize(
    ("block", "wrong"),
    [("[seed]", "sweep: must be a mapping"), ("{seed: {least: 1}}", "sweep.seed: must be a value or a list of them")],
)
def test_a_faulty_block_is_named(conf: Path, block: str, wrong: str) -> None:
    preset(conf, "odd", f"sweep: {block}\n")
    with pytest.raises(ConfigError, match=wrong):
        sweep_block("odd")


def test_keys_of_the_run_may_be_one_strategys_own(conf: Path) -> None:
    text = "num_rounds: 9\nfor_strategy:\n  fedavg: {num_rounds: 3, train.local_steps: 4, shared_layers: ['1']}\n"
    preset(conf, "own", text)
    own = compose(["experiment=own", "strategy=fedavg"])
    assert (own.num_rounds, own.train.local_steps) == (3, 4)
    assert own.strategy.settings.shared_layers == ["1"]  # type: ignore[attr-defined]
    assert compose(["experiment=own"]).num_rounds == 9
    assert compose(["experiment=own", "strategy=fedavg", "num_rounds=5"]).num_rounds == 5
    preset(conf, "odd", "for_strategy:\n  fedavg: {num_round: 3}\n")
    with pytest.raises(ConfigError, match=r"for_strategy\.fedavg\.num_round"):
        compose(["experiment=odd", "strategy=clove"])


@pytest.mark.slow
def test_finished_jobs_of_a_block_are_kept_and_those_of_other_settings_run(
    conf: Path, begun: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", "experiment=mine"]) == 0
    assert begun == ["clove 0", "fedavg 0", "clove 1", "fedavg 1"]
    first = capsys.readouterr().out
    begun.clear()
    assert main(["-m", "experiment=mine"]) == 0
    again = capsys.readouterr().out
    assert begun == []
    assert again.count("; finished before") == 4
    table = [line for line in first.splitlines() if line.startswith("|")]
    assert table
    assert [line for line in again.splitlines() if line.startswith("|")] == table
    # The preset's own settings have changed: what was made with the old ones is no result of it.
    preset(conf, "mine", "num_rounds: 3\nsweep: {seed: [0, 1], strategy: 'clove,fedavg'}\n")
    assert main(["-m", "experiment=mine", "seed=1"]) == 0
    assert begun == ["clove 1", "fedavg 1"]


@pytest.mark.slow
def test_a_stopped_job_goes_on_and_a_plain_sweep_begins_anew(conf: Path, begun: list[str]) -> None:
    sweep = ["-m", "experiment=mine", "strategy=ifca", "seed=0"]
    assert main(sweep) == 1
    assert main(sweep) == 0
    assert begun == ["ifca 0", "ifca 0 goes on"]
    begun.clear()
    for _ in range(2):
        assert main(["-m", "experiment=quickstart", "strategy=fedavg", "seed=0"]) == 0
    assert begun == ["fedavg 0", "fedavg 0"]


@pytest.mark.slow
def test_every_shipped_block_can_run_and_the_comparison_has_every_strategy() -> None:
    with_sweeps = [name for name in choices("experiment") if sweep_block(name)]
    assert "compare/digits" in with_sweeps
    for name in with_sweeps:
        # That every preset composes with every strategy is tested with the presets.
        assert check_jobs(read_sweep(with_block([f"experiment={name}", "seed=0", "strategy=clove"])[0])) == {}
    compared = sweep_block("compare/digits")["strategy"].split(",")
    # Pooled data are no federation, so no method on equal terms with the others.
    assert sorted(compared) == sorted(set(STRATEGIES) - {"two_phase", "centralised"})
    assert len(list(expand(read_sweep(with_block(["experiment=compare/digits"])[0])))) == 10 * len(compared)


def test_the_table_marks_who_samples_and_shows_rounds_and_passes_where_they_differ() -> None:
    def job(strategy: str, participation: float, rounds: int) -> JobResult:
        config = compose([f"strategy={strategy}"])
        summary = fake_cells.summary_of(config, Path("run"))
        told = {**vars(summary), "rounds": rounds, "gradient_passes": 1_234_567}
        return JobResult({"strategy": strategy}, None, RunSummary(**told), None, participation)

    text = summary_markdown([job("clove", 1.0, 20), job("fedavg", 0.4, 50)])
    assert "| fedavg (40 % of the clients a round) | 1 " in text
    assert "1,000 gradient passes" in text
    assert "| 1,235 " in text
    (clove,) = [line for line in text.splitlines() if line.startswith("| clove ")]
    assert clove.split("|")[3].strip() == "20"
    alike = summary_markdown([job("clove", 0.4, 20), job("fedavg", 0.4, 20)])
    assert "of the clients a round" not in alike
    assert "| rounds" not in alike


ENGINE = "florets.engines.engine.run"
OPTUNA = ["hydra/sweeper=optuna"]
HELD_OUT = "task.validation_fraction=0.2"
BY_ACCURACY = [HELD_OUT, "measure=accuracy"]


@pytest.mark.parametrize(
    ("overrides", "for_hydra", "expected"),
    [
        (["k=2,4", *BY_ACCURACY], OPTUNA, ["hydra.sweeper.direction=maximize"]),
        # The default measure is the loss.
        (["k=2,4", HELD_OUT], OPTUNA, []),
        (
            ["task=digits,mnist", *BY_ACCURACY],
            ["hydra/sweeper=ax"],
            ["hydra.sweeper.ax_config.experiment.minimize=false"],
        ),
        (BY_ACCURACY, ["hydra/sweeper=nevergrad"], ["hydra.sweeper.optim.maximize=true"]),
        # Nothing is optimised, or nothing is known of the sweeper.
        (["seed=0,1"], ["hydra/launcher=joblib"], []),
        (["seed=0,1"], ["hydra/sweeper=basic"], []),
        (BY_ACCURACY, [*OPTUNA, "hydra.sweeper.direction=minimize"], []),
        # Of an interval the start is looked at, and a combination that cannot run tells nothing.
        (["k=interval(2,4)", *BY_ACCURACY], OPTUNA, ["hydra.sweeper.direction=maximize"]),
        (
            ["strategy=fedavg,clove", "strategy.memory=true", *BY_ACCURACY],
            OPTUNA,
            ["hydra.sweeper.direction=maximize"],
        ),
        (["experiment=clove/linear,nosuch", HELD_OUT], OPTUNA, []),
    ],
)
def test_the_direction_follows_from_the_validation_figure(overrides, for_hydra, expected):
    assert direction(read_sweep(overrides), for_hydra) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["k=2,4"], "never by test data, and some of these jobs have none; add task.validation_fraction=0.2"),
        (["k=2,4", "seed=0,1", HELD_OUT], "seed=0,1: a sweeper that optimises would choose the luckiest seed"),
        (
            ["measure=accuracy,auto", HELD_OUT],
            "some of these jobs have the validation figure accuracy and others loss",
        ),
        (["strateggy=clove", "k=2,4"], "strateggy=clove: there is no such key"),
    ],
)
def test_jobs_that_cannot_be_compared_or_cannot_run_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        direction(read_sweep(overrides), OPTUNA)


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


def best_yaml(root: Path) -> dict[str, Any]:
    (found,) = root.rglob("best.yaml")
    content: dict[str, Any] = yaml.safe_load(found.read_text())
    return content


# Optuna 2, which the plugin needs, warns of its own old names.
@pytest.mark.filterwarnings("default")
def test_optuna_chooses_by_validation_and_a_failed_job_is_a_failed_trial(ran, tmp_path: Path, capsys):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="hydra-optuna-sweeper is not installed")
    assert main(["tune", "k=2,5,4,3", "sampler=random", "trials=6", *BY_ACCURACY]) == 1
    # One of the settings was proposed twice, which makes no second seed of it.
    assert len(ran) == 6
    (found,) = tmp_path.rglob("optimization_results.yaml")
    assert yaml.safe_load(found.read_text())["best_value"] == 0.9
    best = best_yaml(tmp_path)
    assert best["overrides"] == "k=3 task.validation_fraction=0.2 measure=accuracy"
    assert best["validation"]["mean"] == 0.9
    assert best["test"]["accuracy"]["mean"] == pytest.approx(0.3)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Best of 3 settings by validation accuracy: k=3 task.validation_fraction=0.2")
    assert "(validation 90.0%, test accuracy 30.0%, test ARI 1.00)" in last


def test_a_grid_names_the_best_mean_over_the_seeds(ran, tmp_path: Path, capsys):
    assert main(["tune", "k=2,3,4", "seed=0,1", "sampler=grid", "measure=accuracy"]) == 0
    best = best_yaml(tmp_path)
    # Held out where nothing was said of it, and no seed: the setting was run with two.
    assert best["overrides"] == "k=3 measure=accuracy task.validation_fraction=0.2"
    assert best["test"]["accuracy"] == {"mean": pytest.approx(0.305), "std": pytest.approx(0.01 / 2**0.5), "runs": 2}
    assert "Settings are chosen by validation data: task.validation_fraction=0.2." in capsys.readouterr().out
    # What is written is taken by the command.
    assert main(best["overrides"].split()) == 0
    assert (ran[-1].k, ran[-1].task.validation_fraction) == (3, 0.2)


def test_a_setting_that_fails_with_one_seed_is_not_the_best_and_without_validation_none_is(
    ran, tmp_path: Path, capsys
):
    assert main(["-m", "k=2,3,5", "seed=0,1", HELD_OUT]) == 1
    # By the loss, which is to be low, k=2 is best; k=5 has no figure.
    assert best_yaml(tmp_path)["overrides"] == "k=2 task.validation_fraction=0.2"
    assert main(["-m", "k=2,3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Results of the sweep: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k=4"], "nothing to choose among; give a key several values or an interval"),
        (["k=2,4", "sampler=tpa", "trials=0"], "sampler=tpa: there is no such sampler (tpe, random, grid). Did you"),
        (["k=2,4", "sampler=grid", "trials=5"], "trials=5: a grid runs all combinations; leave trials out"),
        (["k=interval(2,4)", "sampler=grid"], "k=interval(2,4): a grid needs values"),
        (["k=interval(4,2)"], "k=interval(4,2): the first end must be below the second"),
        (["k=2,4", "trials=many"], "trials=many: must be an integer"),
        (
            ["k=2,4", "task.validation_fraction=0"],
            "task.validation_fraction=0: settings are chosen by validation data",
        ),
        (["k=2,4", "--grid"], "--grid: florets tune has no such option"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(ran, capsys, arguments, message):
    assert main(["tune", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert ran == []


def test_intervals_of_integers_stay_integers_and_ranges_end_before_their_end():
    given = ["k=interval(2, 4)", "seed=0", "num_rounds=range(1,4)", "train.learning_rate=tag(log,interval(0.1,1))"]
    texts = tune_overrides([*given, HELD_OUT], None, "tpe", 1)
    assert texts[:5] == ["k=int(interval(2, 4))", *given[1:2], "num_rounds=1,2,3", given[3], HELD_OUT]
    assert "hydra.sweeper.n_trials=20" in texts
