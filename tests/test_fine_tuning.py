"""Fine-tuned copies and validation data at an evaluation: what is tested and reported, and what never changes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from safetensors.numpy import load_file

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.engines.local_grid import LocalGrid
from florets.reports.summary import RunSummary
from florets.server_app.build import build_models, build_task, message_settings
from florets.task.randomness import Purpose, generator
from florets.task.task import Task
from florets.task.training.loop import train
from florets.task.training.losses import evaluate
from florets.task.training.settings import Training
from florets.task.wire import bank, kinds
from florets.task.wire.evaluation import read_evaluation

TWO = ["num_clients=4", "k=2", "task.num_clusters=2", "quiet=true"]
SMALL = [*TWO, "task.model_options={hidden: [8]}"]
SHORT = ["num_rounds=2", "eval_every=100", "loss_matrix=false", "checkpoint_every=0"]


def ask(overrides: list[str], **settings: object) -> tuple[MetricRecord, Task]:
    """Send the third client model 0 in round 3, and return its reply's numbers."""
    config = compose(overrides)
    task = build_task(config)
    first = bank.model(build_models(config, task), 0)
    given = {**message_settings(config, task), kinds.SERVER_ROUND: 3, kinds.CLIENT_NUMBER: 2, **settings}
    content = RecordDict({kinds.CONFIG: ConfigRecord(given), kinds.ARRAYS: first})  # type: ignore[dict-item]
    (reply,) = LocalGrid(app, 4).send_and_receive([Message(content, 4, kinds.EVALUATE)])
    assert not reply.has_error(), reply.error.reason
    read_evaluation(reply.content, kinds.FINE_TUNE_EPOCHS in settings, kinds.VALIDATION in settings)
    return reply.content.metric_records[kinds.METRICS], task


@pytest.mark.parametrize(
    "how",
    [
        ["task.model_options={hidden: [8]}", "train.batch_size=32", "train.learning_rate=0.05"],
        # A linear model, in NumPy: its full steps by hand, and the optimiser's.
        ["task.model=linear", "task.model_options={bias: true}", "train.optimizer=sgd", "train.batch_size=5000"],
        ["task.model=linear", "train.batch_size=32"],
    ],
)
def test_the_copy_is_trained_for_its_own_epochs_and_tested_on_both_parts(how: list[str]) -> None:
    overrides = [*TWO, *how, "task.validation_fraction=0.25", "train.local_steps=1"]
    plain, _ = ask(overrides, **{kinds.VALIDATION: True})
    found, task = ask(overrides, **{kinds.VALIDATION: True, kinds.FINE_TUNE_EPOCHS: 2.0})
    assert {name: found[name] for name in plain} == dict(plain)

    config, data = compose(overrides), task.client(2)
    module = task.build_model()
    arrays = bank.model(build_models(config, task), 0)
    module.load_state_dict({name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()})
    settings = Training(config.train.learning_rate, 2, config.train.batch_size, config.train.optimizer)
    rng = generator(0, 3, Purpose.FINE_TUNING, 2)
    train(module, data.x_train, data.y_train, "cross_entropy", settings, rng)
    for part, prefix in (("test", kinds.TUNED), ("validation", kinds.TUNED + kinds.VALIDATED)):
        loss, accuracy = evaluate(module, *data.part(part), "cross_entropy")  # type: ignore[arg-type]
        assert found[prefix + kinds.EVAL_LOSS] == pytest.approx(loss, rel=1e-5)
        assert found[prefix + kinds.EVAL_ACCURACY] == pytest.approx(accuracy)


def test_validation_data_are_a_fixed_part_of_the_training_data_and_never_trained_on() -> None:
    whole = build_task(compose(SMALL)).client(1)
    task, again = (build_task(compose([*SMALL, "task.validation_fraction=0.25"])) for _ in range(2))
    data = task.client(1)
    assert torch.equal(data.x_train, again.client(1).x_train)
    x, _ = data.part("validation")
    assert len(x) == round(0.25 * len(whole.x_train))
    assert len(x) + len(data.x_train) == len(whole.x_train)
    rows = {tuple(row) for row in torch.cat([data.x_train, x]).flatten(1).tolist()}
    assert rows == {tuple(row) for row in whole.x_train.flatten(1).tolist()}
    assert torch.equal(data.x_test, whole.x_test)
    with pytest.raises(ValueError, match=r"no validation data: give task\.validation_fraction"):
        whole.part("validation")


def play(folder: Path, *overrides: str) -> tuple[RunSummary, list[dict[str, str]], dict[str, object]]:
    given = [*SMALL, *overrides, f"results_dir={folder}"]
    summary = run(compose(given), given)
    place = Path(summary.folder)
    rows = list(csv.DictReader((place / "clients.csv").read_text().splitlines()))
    return summary, rows, json.loads((place / "rounds.jsonl").read_text().splitlines()[-1])


# One model, and groups that change; a model for each client, and groups that stay.
@pytest.mark.parametrize(
    "strategy",
    [
        *("fedavg", "clove"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("local", "one_shot")),
    ],
)
def test_every_strategy_tests_the_copies_apart_and_ends_with_the_same_models(tmp_path: Path, strategy: str) -> None:
    plain, rows, line = play(tmp_path / "plain", f"strategy={strategy}", *SHORT)
    assert (plain.final_tuned_accuracy, plain.final_tuned_loss, line["tuned_accuracy"]) == (None, None, None)
    assert not any("tuned" in name or "validation" in name for name in rows[0])
    tuned, rows, line = play(tmp_path / "tuned", f"strategy={strategy}", *SHORT, "fine_tune_epochs=2")
    for name, values in load_file(Path(plain.folder) / "models.safetensors").items():
        np.testing.assert_array_equal(values, load_file(Path(tuned.folder) / "models.safetensors")[name])
    assert (tuned.final_accuracy, tuned.final_loss) == (plain.final_accuracy, plain.final_loss)
    assert tuned.final_tuned_loss == line["tuned_loss"]
    assert tuned.final_tuned_loss == pytest.approx(np.mean([float(row["tuned_test_loss"]) for row in rows]))
    assert tuned.final_tuned_loss < (plain.final_loss or 0)
    accuracies = [float(row["tuned_test_accuracy"]) for row in rows]
    assert tuned.final_tuned_accuracy == line["tuned_accuracy"] == pytest.approx(np.mean(accuracies))
    assert line["tuned_accuracy_std"] == pytest.approx(np.std(accuracies))
    page = (Path(tuned.folder) / "report.html").read_text()
    assert "after fine-tuning" in page
    assert "fine-tuned accuracy" in page
