"""Trackers: what they are given, what TensorBoard's and MLflow's stores hold, and what a failure does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.saved import results_folder
from florets.engines.engine import resume, run
from florets.server_app.resume import read_resume
from florets.server_app.tracker_stores import tracking_of
from florets.studies import one_run
from tests.own_trackers import Calls

SMALL = ["num_clients=4", "k=2", "task.num_clusters=2", "num_rounds=3", "train.local_epochs=1", "quiet=true"]
OWN = "tests.own_trackers"


def small(folder: Path, *more: str) -> list[str]:
    return [*SMALL, f"results_dir={folder}", *more]


def ran(overrides: Sequence[str]) -> Path:
    config = one_run.prepare(overrides, Path.cwd())
    run(config, overrides)
    return results_folder(config, overrides)


def gone_on(folder: Path, *more: str) -> None:
    found = read_resume([f"resume={folder}", "trust=true", *more], Path.cwd())
    assert found is not None
    resume(*found)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_a_tracker_of_ones_own_sees_the_whole_run(tmp_path: Path) -> None:
    folder = ran(small(tmp_path, f"tracker={OWN}:Calls"))
    seen, lines = Calls.seen, lines_of(folder)
    (start,), (end,) = seen.starts, seen.ends
    assert (start.folder, start.num_rounds, start.done_rounds) == (folder, 3, 0)
    assert start.name == folder.relative_to(tmp_path).as_posix()
    assert (start.params["k"], start.params["strategy.name"], start.params["train.batch_size"]) == (2, "clove", 100)
    assert seen.rounds == lines
    assert end.error is None
    assert end.summary is not None
    assert end.summary.final_accuracy == lines[-1]["accuracy"]
    assert {"report.html", "config.yaml", "clients.csv"} <= {path.name for path in end.files}


def test_a_tracker_that_fails_is_named_once_and_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plain = ran(small(tmp_path / "plain"))
    failing = ran(small(tmp_path / "failing", f"tracker={OWN}:Failing"))
    assert len(Calls.seen.rounds) == len(Calls.seen.ends) == 1
    said = f"tracker={OWN}:Failing failed (ConnectionError: no server); the run continues without it"
    assert capfd.readouterr().err.count(said) == 1
    assert said in (failing / "report.html").read_text()
    assert (plain / "models.safetensors").read_bytes() == (failing / "models.safetensors").read_bytes()
    # Where a run is logged is no part of what it is.
    assert plain.relative_to(tmp_path / "plain") == failing.relative_to(tmp_path / "failing")


def test_a_tracker_that_does_not_start_is_still_ended(tmp_path: Path) -> None:
    ran(small(tmp_path, f"tracker={OWN}:NotStarting"))
    assert (len(Calls.seen.rounds), len(Calls.seen.ends)) == (0, 1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tensorbord", "must be tensorboard, mlflow or an import path"),
        ("null", "must be a string or a list of strings"),
    ],
)
def test_names_are_checked_before_anything_runs(value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose([f"tracker={value}"])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{OWN}:Half", "it lacks on_round, on_end"),
        (f"{OWN}:Nobody", "has no function 'Nobody'"),
        ("builtins:open", "cannot be created without arguments"),
    ],
)
def test_an_import_path_must_lead_to_a_tracker(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tracking_of(compose([f"tracker={path}"]))


def test_a_preset_may_name_a_class_only_with_consent(conf_copy: Path) -> None:
    preset = conf_copy / "experiment" / "traced.yaml"
    preset.write_text(f"tracker: [tensorboard, '{OWN}:Calls']\n")
    with pytest.raises(ConfigError, match=rf"code of its author's, tracker={OWN}:Calls; add trust=true"):
        compose(["experiment=traced"])
    assert compose(["experiment=traced", "trust=true"]).tracker == ["tensorboard", f"{OWN}:Calls"]
    assert compose(["experiment=traced", "tracker=mlflow"]).tracker == "mlflow"


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_holds_the_figures_of_a_run_that_was_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    overrides = small(tmp_path, f"tracker=[{OWN}:Interrupting,tensorboard]", "checkpoint_every=1")
    with pytest.raises(KeyboardInterrupt):
        ran(overrides)
    folder = results_folder(one_run.prepare(overrides, Path.cwd()), overrides)
    assert isinstance(Calls.seen.ends[0].error, KeyboardInterrupt)
    # Interrupted in round 2, before its checkpoint: the run goes through it again.
    gone_on(folder, "tracker=tensorboard")
    place = tmp_path / "tensorboard" / folder.relative_to(tmp_path)
    found, lines = scalars(place), lines_of(folder)
    for name in ("accuracy", "loss", "train_loss", "ari", "bytes_up"):
        assert found[name] == [(line["round"], pytest.approx(line[name])) for line in lines]
    assert found["replies/ok"] == [(line["round"], line["replies"]["ok"]) for line in lines]
    (text, _) = EventAccumulator(str(place)).Reload().Tensors("configuration/text_summary")
    assert b"train.batch_size" in text.tensor_proto.string_val[0]


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_mlflow_holds_params_figures_and_files(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    from florets.server_app.tracker_stores import default_store

    overrides = small(tmp_path, f"tracker=[mlflow,{OWN}:Interrupting]")
    with pytest.raises(KeyboardInterrupt):
        ran(overrides)
    folder = results_folder(one_run.prepare(overrides, Path.cwd()), overrides)
    client = MlflowClient(default_store(tmp_path))
    experiment = client.get_experiment_by_name("quickstart")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "KILLED"
    gone_on(folder, "tracker=mlflow", "num_rounds=4")
    run_id = found.info.run_id
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_id, found.info.status) == (run_id, "FINISHED")
    assert found.info.run_name == folder.relative_to(tmp_path).as_posix()
    assert (found.data.params["k"], found.data.params["train.optimizer"]) == ("2", "adam")
    # As it was started: MLflow changes no parameter.
    assert found.data.params["num_rounds"] == "3"
    lines = lines_of(folder)
    for name in ("accuracy", "train_loss", "bytes_down"):
        history = client.get_metric_history(run_id, name)
        assert [(point.step, point.value) for point in history] == [(line["round"], line[name]) for line in lines]
    assert found.data.metrics["final/accuracy"] == lines[-1]["accuracy"]
    files = {item.path for item in client.list_artifacts(run_id)}
    assert {"report.html", "curves.png", "loss_matrix.png", "config.yaml", "clients.csv"} <= files
    copy = Path(client.download_artifacts(run_id, "report.html", str(tmp_path)))
    assert copy.read_bytes() == (folder / "report.html").read_bytes()
