"""A command that is given again: it replaces a finished run, and no run that could go on."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config, as_plain
from florets.engines import flower_processes, flower_run
from florets.reports.folder import FINISHED, MARKER
from florets.reports.summary import RunSummary
from florets.server_app.checkpoint import Checkpoints
from florets.server_app.resume import find_checkpoint, refuse_interrupted
from florets.studies.go_on import Engine, go_on, plain, same_settings
from florets.task import given
from tests import fake_cells


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """The folder of a run that was killed after round 12."""
    folder = tmp_path / "results" / "quickstart" / "clove" / "seed-3"
    for path in (folder / MARKER, Checkpoints(folder).folder / "round-000012.safetensors"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("what was computed")
    return folder


def held(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sweep", [False, True])
def test_an_interrupted_run_is_not_replaced_and_its_resumption_is_named(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sweep: bool
) -> None:
    monkeypatch.chdir(interrupted.parents[3])
    before = held(interrupted)
    assert main(["-m", "seed=3"] if sweep else ["seed=3"]) == (1 if sweep else 2)
    said = capsys.readouterr()
    text = said.out if sweep else said.err
    assert f"{interrupted}: holds an interrupted run, saved after round 12." in text
    assert f"resume={interrupted}" in text
    assert "remove that folder, or set another results_dir" in text
    assert held(interrupted) == before


def test_flowers_processes_are_not_even_started(interrupted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_run, "own_superlink", lambda: pytest.fail("started"))
    given = ["seed=3", "engine=flwr", f"results_dir={interrupted.parents[2]}"]
    with pytest.raises(ConfigError, match="saved after round 12"):
        flower_run.run_in(interrupted, compose(given))


def test_a_run_that_flower_says_has_failed_is_not_taken_for_the_earlier_one_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        "run": {"run-id": 7},
        "ls": {"runs": [{"status": "finished:failed", "status-details": "no client is online"}]},
    }

    def flwr(_: object, command: str, *others: str, capture: bool = False) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess([command], 0, json.dumps(answers.get(command, {})), "")

    monkeypatch.setattr(flower_run.Connection, "flwr", flwr)
    config = compose(["engine=flwr", "superlink=x"])
    fake_cells.end(config, tmp_path)
    with pytest.raises(flower_run.FlowerRunError, match="ended as finished:failed: no client is online"):
        flower_run.run_in(tmp_path, config)


def test_an_object_of_the_callers_is_not_submitted_to_somebody_elses_superlink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower_run, "_follow", lambda *_: pytest.fail("submitted"))
    model = given.hold(lambda: None, "Net")
    config = replace(compose(["engine=flwr", "superlink=x"]), task=replace(compose([]).task, model=model))
    with pytest.raises(ConfigError, match=rf"task.model={model}: superlink=x runs in .*florets app <folder>"):
        flower_run.run_in(tmp_path / "run", config)


def test_what_holds_nothing_to_go_on_from_is_replaced_as_ever(interrupted: Path) -> None:
    (interrupted / FINISHED).touch()
    refuse_interrupted(interrupted, compose([]))
    (interrupted / FINISHED).unlink()
    next(Checkpoints(interrupted).folder.iterdir()).unlink()
    refuse_interrupted(interrupted, compose([]))
    refuse_interrupted(interrupted.with_name("seed-4"), compose([]))
    assert not interrupted.with_name("seed-4").exists()


def test_a_table_begins_a_run_anew_of_whose_checkpoint_nothing_can_be_read(interrupted: Path) -> None:
    config = compose(["seed=3"])
    (interrupted / "config.yaml").write_text(yaml.safe_dump(as_plain(config)))
    made: list[Path] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        refuse_interrupted(interrupted, config)
        made.append(interrupted)
        return fake_cells.summary_of(config, interrupted)

    def resume(config: Config, folder: Path) -> RunSummary:
        find_checkpoint(folder, config)
        raise AssertionError("the checkpoint is no file of tensors")

    go_on(config, ["seed=3"], interrupted, Engine(run, resume))
    assert made == [interrupted]


@pytest.mark.parametrize(
    ("asked", "saved", "same"),
    [
        *[("auto", 6, True), ("auto", "off", True), ("1", "off", True), ("6", 6, True), ("off", "off", True)],
        *[("6", 4, False), ("off", 6, False), ("6", "off", False)],
    ],
)
def test_a_table_goes_on_with_the_block_size_that_a_run_has_chosen(
    interrupted: Path, asked: str, saved: int | str, same: bool
) -> None:
    config = compose(["seed=3", f"batch_clients={asked}"])
    (interrupted / "config.yaml").write_text(yaml.safe_dump(as_plain(config) | {"batch_clients": saved}))
    assert same_settings(yaml.safe_load((interrupted / "config.yaml").read_text()), plain(config)) == same
    sizes: list[int | str] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        return fake_cells.summary_of(config, interrupted)

    def resume(config: Config, folder: Path) -> RunSummary:
        sizes.append(config.batch_clients)
        return fake_cells.summary_of(config, interrupted)

    go_on(config, ["seed=3"], interrupted, Engine(run, resume))
    assert sizes == ([saved] if same else [])


def test_the_simulation_has_a_ray_of_its_own_unless_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_processes, "start", lambda *arguments: None)
    monkeypatch.setattr(flower_processes, "wait_for_port", lambda *arguments, **more: True)
    monkeypatch.setattr(flower_processes, "end", lambda process: None)
    for named, found in (("", "local"), ("node:6379", "node:6379")):
        monkeypatch.setenv("RAY_ADDRESS", named)
        with flower_run.own_superlink() as superlink:
            assert superlink.environment["RAY_ADDRESS"] == found
