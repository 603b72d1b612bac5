"""Sweeps that a preset carries: keys by hand win, finished jobs are kept, stopped ones go on."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.compose import choices, compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.conf.sweep_block import sweep_block, with_block
from florets.engines import engine
from florets.reports.summary import RunSummary
from florets.server_app.sweep.sweep_groups import JobResult
from florets.server_app.sweep.sweep_keys import check_jobs, expand, read_sweep
from florets.server_app.sweep.sweep_report import summary_markdown
from florets.strategies import STRATEGIES
from tests import fake_cells

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
    monkeypatch.setattr("florets.server_app.sweep.sweep_report._draw", lambda *_: None)
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
