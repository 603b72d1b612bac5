"""Sums of tests: pooled figures held to scikit-learn of the joined records; replicates; what is refused."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from sklearn import metrics
from sklearn.dummy import DummyClassifier

from florets.client_app.app import app
from florets.client_app.client import Client
from florets.client_app.handlers.evaluate import evaluate
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.engines.local_grid import LocalGrid
from florets.reports.pooled import PartStatistics, TestStatistics, constant, pooled, read_test_statistics, to_json
from florets.server_app.build import build_models, build_task, message_settings
from florets.task.client_data import ClientData
from florets.task.tested import PartSums
from florets.task.training.figures import resampling, sums_of, target_sums
from florets.task.wire import MalformedMessage, bank, kinds
from florets.task.wire.evaluation import (
    CLASS_MEASURES,
    MIN_RECORDS,
    REPLICATES,
    VALUE_MEASURES,
    pack_sums,
    read_evaluation,
)

Site = tuple[np.ndarray, np.ndarray]
"""Outputs and targets of a client's test."""


def class_sites(num_classes: int, sizes: Sequence[int], seed: int = 0, spread: float = 1.0) -> list[Site]:
    """Return sites whose classes are rare or frequent by turns, and whose outputs say something of the class."""
    rng, sites = np.random.default_rng(seed), []
    for number, size in enumerate(sizes):
        shares = rng.dirichlet(np.ones(num_classes))
        labels = rng.choice(num_classes, size=size, p=shares)
        outputs = rng.normal(size=(size, num_classes)) + 1.5 * np.eye(num_classes)[labels] + 0.3 * number
        sites.append((spread * outputs, labels))
    return sites


def value_sites(sizes: Sequence[int], seed: int = 0) -> list[Site]:
    rng, sites = np.random.default_rng(seed), []
    for size in sizes:
        targets = rng.normal(12 + rng.normal(), 3, size=size)
        sites.append(((targets + rng.normal(0, 2, size=size))[:, None], targets))
    return sites


def part_of(outputs: np.ndarray, targets: np.ndarray, num_classes: int) -> PartStatistics:
    sums = sums_of(outputs, targets, num_classes, resampling(outputs, targets))
    assert sums is not None
    return PartStatistics(len(targets), {}, sums)


def joined(sites: Sequence[Site]) -> Site:
    return np.concatenate([outputs for outputs, _ in sites]), np.concatenate([targets for _, targets in sites])


def probabilities(outputs: np.ndarray) -> np.ndarray:
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def class_oracle(outputs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    shares, predicted = probabilities(outputs), outputs.argmax(axis=1)
    two = outputs.shape[1] == 2
    return {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, predicted),
        "macro_f1": metrics.f1_score(labels, predicted, average="macro"),
        "log_loss": metrics.log_loss(labels, shares, labels=range(outputs.shape[1])),
        "auc": metrics.roc_auc_score(labels, shares[:, 1] if two else shares, multi_class="ovr"),
    }


def value_oracle(outputs: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    return {
        "r2": metrics.r2_score(targets, outputs[:, 0]),
        "mae": metrics.mean_absolute_error(targets, outputs[:, 0]),
        "rmse": metrics.root_mean_squared_error(targets, outputs[:, 0]),
    }


@pytest.mark.parametrize("num_classes", [2, 5])
def test_pooled_figures_of_classes_are_scikit_learns_of_the_joined_records(num_classes: int) -> None:
    sites = class_sites(num_classes, [40, 5, 150, 11])
    tests = [part_of(*site, num_classes) for site in sites]
    expected = class_oracle(*joined(sites))
    for measure in CLASS_MEASURES:
        assert pooled(tests, measure) == pytest.approx(expected[measure], abs=1e-3 if measure == "auc" else 1e-12)
    alone = class_oracle(*sites[2])
    assert tests[2].sums is not None
    assert tests[2].sums.figures == pytest.approx([alone[measure] for measure in CLASS_MEASURES])
    assert np.isnan(pooled(tests, "r2"))


def test_pooled_figures_of_values_are_scikit_learns_of_the_joined_records() -> None:
    sites = value_sites([40, 5, 150])
    tests, expected = [part_of(*site, 0) for site in sites], value_oracle(*joined(sites))
    for measure in VALUE_MEASURES:
        assert pooled(tests, measure) == pytest.approx(expected[measure], rel=1e-12)
    # Targets that are all alike have no R2.
    alike = part_of(np.arange(5.0)[:, None], np.full(5, 2.0), 0)
    assert alike.sums is not None
    assert np.isnan(alike.sums.figures[0])


def test_the_constant_answer_is_the_dummy_of_all_training_records() -> None:
    sites = class_sites(3, [40, 25, 90])
    trains = [np.array([0, 0, 1]), np.array([1, 1, 1, 2]), np.array([2, 0, 1, 1])]
    told = {
        str(n): TestStatistics({"test": part_of(*site, 3)}, target_sums(train, 3))
        for n, (site, train) in enumerate(zip(sites, trains, strict=True))
    }
    train, (_, labels) = np.concatenate(trains), joined(sites)
    frequent, prior = (
        DummyClassifier(strategy=strategy).fit(np.zeros((len(train), 1)), train)
        for strategy in ("most_frequent", "prior")
    )
    for measure, score in (
        ("accuracy", metrics.accuracy_score),
        ("balanced_accuracy", metrics.balanced_accuracy_score),
        ("macro_f1", lambda y, p: metrics.f1_score(y, p, average="macro")),
    ):
        found = constant(told, measure)  # type: ignore[arg-type]
        assert found.pooled == pytest.approx(score(labels, frequent.predict(labels[:, None])))
        own = sites[1][1]
        assert found.clients["1"] == pytest.approx(score(own, frequent.predict(own[:, None])))
    assert constant(told, "log_loss").pooled == pytest.approx(
        metrics.log_loss(labels, prior.predict_proba(labels[:, None]))
    )
    assert constant(told, "balanced_accuracy").pooled == pytest.approx(1 / 3)
    assert constant(told, "auc").pooled == 0.5


def test_replicates_are_figures_of_resamples_that_only_the_records_decide() -> None:
    outputs, labels = class_sites(3, [60])[0]
    sums = sums_of(outputs, labels, 3, resampling(outputs, labels))
    assert sums is not None
    drawn = resampling(outputs, labels).integers(60, size=(REPLICATES, 60))
    expected = class_oracle(outputs[drawn[7]], labels[drawn[7]])
    assert sums.replicates[7] == pytest.approx([expected[measure] for measure in CLASS_MEASURES], rel=1e-6)
    # Another model on the same records: the same resamples, so that their differences are paired.
    other = sums_of(outputs + 0.1, labels, 3, resampling(outputs, labels))
    assert other is not None
    assert (other.replicates[:, 0] == sums.replicates[:, 0]).all()
    assert sums.replicates[:, 0].std() == pytest.approx(
        np.sqrt(sums.figures[0] * (1 - sums.figures[0]) / 60), rel=0.2
    )
    changed = resampling(outputs, np.roll(labels, 1)).integers(60, size=(REPLICATES, 60))
    assert (changed != drawn).any()


def reply(parts: dict[str, PartSums], train: np.ndarray, test: dict[str, float], others: Any = None) -> RecordDict:
    content = RecordDict({kinds.METRICS: MetricRecord(dict(test)), kinds.TEST_SUMS: pack_sums(parts, train)})
    record: Any = content[kinds.TEST_SUMS]
    for name, value in (others or {}).items():
        if value is None:
            del record[name]
        else:
            record[name] = value
    return content


OUTPUTS, LABELS = class_sites(3, [30], seed=2)[0]
CLASS_SUMS = part_of(OUTPUTS, LABELS, 3).sums
CLASS_TEST = {
    kinds.EVAL_LOSS: class_oracle(OUTPUTS, LABELS)["log_loss"],
    kinds.EVAL_ACCURACY: class_oracle(OUTPUTS, LABELS)["accuracy"],
    kinds.NUM_EXAMPLES: 30,
}
VALUES, TARGETS = value_sites([30])[0]
VALUE_SUMS = part_of(VALUES, TARGETS, 0).sums
VALUE_TEST = {kinds.EVAL_LOSS: 4.0, kinds.NUM_EXAMPLES: 30}
COUNTS, MOMENTS = np.array([5.0, 0.0, 7.0]), np.array([12.0, 3.5, 80.0])


def test_sums_of_a_reply_are_read_as_they_were_sent_and_only_where_they_were_asked_for() -> None:
    assert CLASS_SUMS is not None
    assert VALUE_SUMS is not None
    for sums, train, test, classes in ((CLASS_SUMS, COUNTS, CLASS_TEST, 3), (VALUE_SUMS, MOMENTS, VALUE_TEST, 0)):
        found = read_evaluation(reply({"test": sums}, train, test), sums_of=classes)
        assert found.sums is not None
        for name, values in vars(sums).items():
            np.testing.assert_array_equal(getattr(found.sums, name), values)
        np.testing.assert_array_equal(found.train, train)
        with pytest.raises(MalformedMessage, match="holds the records"):
            read_evaluation(reply({"test": sums}, train, test))
        # A node may keep them.
        kept = RecordDict({kinds.METRICS: MetricRecord(dict(test))})
        assert read_evaluation(kept, sums_of=classes).sums is None


def changed(name: str, index: Any, value: float, sums: PartSums | None = CLASS_SUMS) -> bytes:
    assert sums is not None
    values = getattr(sums, name).copy()
    values[index] = value
    return bytes(values.tobytes())


OF_CLASSES: list[tuple[dict[str, bytes | None], str]] = [
    ({"test/figures": None}, "does not hold the sums"),
    ({"test/replicates": changed("replicates", (3, 2), -0.5)}, "out of its range"),
    ({"test/sums": changed("sums", 0, 1e9)}, "has another loss"),
    ({"test/confusion": changed("confusion", (0, 0), 3)}, "is not sorted"),
    ({"test/confusion": b""}, "does not count"),
]
OF_VALUES: list[tuple[dict[str, bytes | None], str]] = [
    ({"test/sums": changed("sums", 1, -1.0, VALUE_SUMS)}, "negative sum of squares"),
    ({"test/deviations": changed("deviations", 5, 0.0, VALUE_SUMS)}, "does not fit mean and spread"),
    ({"train": np.array([3.0, 1.0, -1.0]).tobytes()}, "train cannot be"),
]


@pytest.mark.parametrize(
    ("classes", "changes", "message"), [*((3, *one) for one in OF_CLASSES), *((0, *one) for one in OF_VALUES)]
)
def test_sums_that_cannot_be_are_refused(classes: int, changes: dict[str, bytes | None], message: str) -> None:
    sums, train, test = (CLASS_SUMS, COUNTS, CLASS_TEST) if classes else (VALUE_SUMS, MOMENTS, VALUE_TEST)
    assert sums is not None
    with pytest.raises(MalformedMessage, match=message):
        read_evaluation(reply({"test": sums}, train, test, changes), sums_of=classes)


SMALL = [
    *(
        "experiment=digits_label_skew",
        "num_clients=4",
        "k=2",
        "task.num_clusters=2",
        "num_rounds=1",
        "loss_matrix=false",
    ),
    *("task.model_options={hidden: [8]}", "quiet=true", "pictures=false", "statistics=true"),
]


@pytest.mark.parametrize("strategy", ["fedavg", "fedem"])
def test_a_run_leaves_the_sums_of_all_tests(tmp_path: Path, strategy: str) -> None:
    given = [
        *SMALL,
        f"strategy={strategy}",
        "task.validation_fraction=0.25",
        "fine_tune_epochs=1",
        f"results_dir={tmp_path}",
    ]
    summary = run(compose(given), given)
    told = read_test_statistics(Path(summary.folder))
    assert list(told) == ["0", "1", "2", "3"]
    for client in told.values():
        assert list(client.parts) == ["test", "validation", "tuned_test", "tuned_validation"]
        assert all(set(part.replicates) == set(CLASS_MEASURES) for part in client.parts.values())
    tests = [client.parts["test"] for client in told.values()]
    weights = [part.n for part in tests]
    assert pooled(tests, "accuracy") == pytest.approx(
        np.average([part.scores["accuracy"] for part in tests], weights=weights)
    )
    assert tests[0].scores["log_loss"] == pytest.approx(tests[0].scores["loss"], rel=1e-5)
    # Written and read, they are the same.
    text = (Path(summary.folder) / "tests.json").read_text()
    assert to_json(told) == text
    json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(("shares", "expected"), [(None, True), (True, True), (False, False)])
def test_a_real_nodes_owner_may_keep_the_sums(shares: bool | None, expected: bool) -> None:
    found = answer_of_node({} if shares is None else {kinds.SHARE_STATISTICS: shares})
    assert (kinds.TEST_SUMS in found) == expected
    assert kinds.SCORES in found


@pytest.mark.parametrize(("part", "expected"), [("train", set()), ("test", {"train"})])
def test_a_node_sends_no_sums_of_few_records(part: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Client.data.fget  # type: ignore[attr-defined]  # a property

    def few(client: Client) -> ClientData:
        data = whole(client)
        x, y = (getattr(data, f"{name}_{part}")[: MIN_RECORDS - 1] for name in "xy")
        return replace(data, **{f"x_{part}": x, f"y_{part}": y})

    monkeypatch.setattr(Client, "data", property(few))
    found = answer_of_node({})
    assert {name.partition("/")[0] for name in found.get(kinds.TEST_SUMS, {})} == expected  # type: ignore[arg-type]
    read = read_evaluation(found, sums_of=10)
    assert (read.sums, read.train is None) == (None, part == "train")


def answer_of_node(node_config: dict[str, bool]) -> RecordDict:
    """Return the reply of a node that is not simulated, with this in its node config."""
    config = compose([*SMALL, "strategy=fedavg"])
    task = build_task(config)
    settings: Any = {
        **message_settings(config, task), kinds.SERVER_ROUND: 1, kinds.CLIENT_NUMBER: 0, kinds.TEST_SUMS: True
    }  # fmt: skip
    content = RecordDict(
        {kinds.CONFIG: ConfigRecord(settings), kinds.ARRAYS: bank.model(build_models(config, task), 0)}
    )
    # With it Flower builds messages outside of its own processes.
    LocalGrid(app, 4)

    class Real(Client):
        is_simulated = False  # type: ignore[assignment]

    message = Message(content, 1, kinds.EVALUATE)
    context = Context(1, 1, {"partition-id": 0, "num-partitions": 4, **node_config}, RecordDict(), {})
    return evaluate(Real(message, context))
