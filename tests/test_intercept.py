"""Random intercepts: what a client estimates, how it is shrunk, and whose model is tested and saved."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict
from safetensors.numpy import load_file
from scipy.optimize import minimize

from florets.client_app.app import app
from florets.client_app.client import Client
from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import run
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_checked, build_models, build_task, message_settings
from florets.strategies.intercept.client import SPREAD, class_offsets, intercept, value_offset
from florets.strategies.intercept.messages import INTERCEPT, Intercept, offset_basis
from florets.strategies.intercept.strategy import (
    InterceptClients,
    InterceptKept,
    between_variance,
    shrunk,
)
from florets.task.wire import bank, codec, kinds
from florets.task.wire.evaluation import MIN_RECORDS
from tests.fakes import message_to
from tests.method_runs import SMALL, play

# How estimates are shrunk


def test_the_variance_between_clients_solves_its_equation_and_shrinks_by_hand() -> None:
    # Equal variances of 1: sum b^2 / (1 + tau2) = 2 gives tau2 = (4 + 16) / 2 - 1 = 9.
    estimates, variances = np.array([2.0, -4.0]), np.ones(2)
    assert between_variance(estimates, variances) == pytest.approx(9)
    assert shrunk(estimates, variances) == pytest.approx([1.8, -3.6])
    # Different ones: the equation itself; the less is known, the more is shrunk.
    variances = np.array([0.5, 3.0])
    tau2 = between_variance(estimates, variances)
    assert (np.square(estimates) / (variances + tau2)).sum() == pytest.approx(2)
    assert shrunk(estimates, variances) == pytest.approx(tau2 / (tau2 + variances) * estimates)
    # An estimate without information counts for nothing.
    assert between_variance(np.array([2.0, -4.0, 0.0]), np.array([1.0, 1.0, np.inf])) == pytest.approx(9)


def test_clients_that_are_alike_have_no_offsets() -> None:
    assert shrunk(np.array([0.1, -0.1, 0.05]), np.array([0.04, 0.04, 0.04])) == pytest.approx(np.zeros(3))
    assert shrunk(np.zeros(3), np.zeros(3)) == pytest.approx(np.zeros(3))
    assert shrunk(np.array([1.0]), np.array([np.inf])) == pytest.approx(np.zeros(1))
    # Where nothing is uncertain, nothing is shrunk.
    assert shrunk(np.array([1.0, -2.0]), np.zeros(2)) == pytest.approx([1.0, -2.0])


# What a client estimates


def test_of_values_it_is_the_mean_residual() -> None:
    mean, spread = value_offset(np.array([1.0, 2.0, 6.0]))
    assert (mean.tolist(), spread.tolist()) == ([3.0], [7.0])
    assert value_offset(np.array([4.0]))[1].tolist() == [0.0]


def test_of_two_classes_on_a_constant_model_it_is_the_logit_with_its_usual_variance() -> None:
    labels = np.repeat([0, 1], [3000, 1000])
    offsets, variances = class_offsets(np.zeros((4000, 2)), labels)
    # The prior is taken out again, up to the curvature that changes on the way.
    assert offsets == pytest.approx([np.log(1 / 3)], abs=1e-4)
    assert variances == pytest.approx([1 / (4000 * 0.25 * 0.75)], rel=1e-3)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_of_classes_it_is_the_penalised_maximum_without_what_the_prior_said(num_classes: int) -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(60, num_classes)), rng.integers(num_classes, size=60)
    basis = offset_basis(num_classes)

    def loss(offsets: np.ndarray) -> float:
        shifted = logits + basis @ offsets
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return float(-logs[np.arange(60), labels].sum() + offsets @ offsets / (2 * SPREAD**2))

    found = minimize(loss, np.zeros(basis.shape[1]), tol=1e-10, method="BFGS")
    step = 1e-3
    size, eye = basis.shape[1], np.eye(basis.shape[1]) * step
    hessian = np.array(
        [
            [
                (
                    loss(found.x + eye[i] + eye[j])
                    - loss(found.x + eye[i] - eye[j])
                    - loss(found.x - eye[i] + eye[j])
                    + loss(found.x - eye[i] - eye[j])
                )
                / (4 * step**2)
                for j in range(size)
            ]
            for i in range(size)
        ]
    )
    covariance = np.linalg.inv(hessian - eye / step / SPREAD**2)
    told = class_offsets(logits, labels)
    assert told[1] == pytest.approx(np.diagonal(covariance), rel=1e-3)
    assert told[0] == pytest.approx(found.x + covariance @ found.x / SPREAD**2, rel=1e-3, abs=1e-4)


def test_weights_that_make_classes_even_leave_no_offset_and_the_variance_of_the_counts() -> None:
    labels = np.repeat([0, 1], [4900, 100])
    weights = np.where(labels == 1, 49.0, 1.0)
    offsets, variances = class_offsets(np.zeros((5000, 2)), labels, weights)
    assert offsets == pytest.approx([0.0], abs=1e-9)
    # Of the log odds of two counts; the same in another unit of the weights.
    assert variances == pytest.approx([1 / 4900 + 1 / 100], rel=1e-3)
    assert class_offsets(np.zeros((5000, 2)), labels, 7 * weights)[1] == pytest.approx(variances)


@pytest.mark.parametrize("num_classes", [2, 3])
@pytest.mark.parametrize("count", [1, 10, 1000])
def test_a_client_with_one_class_has_a_finite_offset_that_is_shrunk(num_classes: int, count: int) -> None:
    offsets, variances = class_offsets(np.zeros((count, num_classes)), np.zeros(count, dtype=np.int64))
    assert np.isfinite(offsets).all()
    assert (variances > 0).all()
    assert np.isfinite(variances).all()
    # Towards its class, the further the more records it has, and less than it says once others differ little.
    assert (offsets[0] > 0) == (num_classes > 2)
    others = np.array([0.3, -0.3, 0.2, -0.2])
    own = shrunk(np.append(others, offsets[0]), np.append(np.full(4, 0.01), variances[0]))[-1]
    assert abs(own) < abs(offsets[0])


# Within a run


def test_each_group_has_a_spread_of_its_own_and_who_changed_groups_has_no_offset() -> None:
    kept = InterceptKept(
        estimates={key: np.array([value]) for key, value in zip("abcd", (2.0, -4.0, 1.0, 9.0), strict=True)},
        variances={key: np.array([value]) for key, value in zip("abcd", (4.0, 4.0, 4.0, 4.0), strict=True)},
        counts=dict.fromkeys("abcd", 4),
        groups={"a": 0, "b": 0, "c": 1, "d": 1},
    )
    state = SimpleNamespace(kept=kept)
    method = InterceptClients().within(lambda: state, 1)  # type: ignore[arg-type, return-value]  # all that it needs
    # A residual's variance of 4 and 4 records each: v = 1, as above; of c alone: 1 / 1 - 1 = 0.
    found = method.offsets({"a": 0, "b": 0, "c": 1, "d": 0})
    assert {key: offset.tolist() for key, offset in found.items()} == {
        "a": pytest.approx([1.8]), "b": pytest.approx([-3.6]), "c": pytest.approx([0.0])
    }  # fmt: skip


@pytest.mark.parametrize("host", ["fedavg", "clove", "ifca", "discovery"])
def test_training_and_groups_are_those_without_the_method_to_the_bit(host: str) -> None:
    more = (f"strategy={host}", "num_rounds=3", "eval_every=1")
    found, plain = play(*more, "personal=intercept"), play(*more)
    assert found.final == plain.final
    assert [report.assignment for report in found.reports] == [report.assignment for report in plain.reports]
    method = found.strategy.personal
    assert method is not None
    own = method.own_models(found.models, found.strategy.assignment)
    assert set(own) == set(found.strategy.assignment)
    bias = next(entry for entry in found.models.layout.entries if entry.name == "3.bias").place
    for key, row in own.items():
        rest = np.ones(len(row), dtype=bool)
        rest[bias] = False
        assert (row[rest] == found.models.bank[found.strategy.assignment[key]][rest]).all()
        assert row[bias] != pytest.approx(found.models.bank[found.strategy.assignment[key]][bias])


def test_clients_with_labels_of_their_own_gain_by_their_intercepts(tmp_path: Path) -> None:
    """Digits by label skew and one model for all: a client that has few of the classes says so by its offsets."""
    small = [text for text in SMALL if not text.startswith(("num_rounds", "eval_every"))]
    given = [*small, "strategy=fedavg", "num_rounds=5", "quiet=true", f"results_dir={tmp_path}"]
    plain = run(compose(given), given)
    with_offsets = [*given, "personal=intercept"]
    found = run(compose(with_offsets), with_offsets)
    assert plain.final_accuracy is not None
    assert found.final_accuracy is not None
    assert found.final_accuracy > plain.final_accuracy + 0.05
    # A prediction for a client is by its own model.
    folder = Path(found.folder)
    own, shared = (load_file(folder / name) for name in ("own_models.safetensors", "models.safetensors"))
    assert {name.partition("/")[0] for name in own} == set("012345")
    assert (own["0/1.weight"] == shared["0/1.weight"]).all()
    assert (own["0/3.bias"] != shared["0/3.bias"]).any()
    part = build_task(compose(given)).client(5)
    np.savez(tmp_path / "5.npz", x=part.x_test.numpy(), y=part.y_test.numpy())
    output = tmp_path / "predictions.csv"
    assert main(["predict", f"run={folder}", f"data={tmp_path / '5.npz'}", "client=5", f"output={output}"]) == 0


def test_a_client_whose_estimate_is_lost_tests_its_groups_model() -> None:
    more = ("strategy=fedavg", "num_rounds=1", "eval_every=1")
    lost = {(INTERCEPT, 1, 3)}
    found, plain = play(*more, "personal=intercept", lost=lost), play(*more)
    tests, without = found.reports[-1].evaluations, plain.reports[-1].evaluations
    assert {key for key in tests if tests[key].loss == without[key].loss} == {"3"}


def test_a_regression_shifts_its_one_output() -> None:
    more = ("experiment=cfl_gp/linear", "strategy=fedavg", "num_rounds=1", "eval_every=1", "num_clients=6")
    small = ("task.data_options.train_per_line=60", "task.data_options.test_per_line=20")
    bias = ("task.model=linear", "task.model_options={bias: true}", "averaging=models")
    found = play(*more, *small, *bias, "personal=intercept")
    assert len(found.reports[-1].evaluations) == 6


def checked(given: list[str]) -> None:
    config = compose(given)
    build_checked(config, build_task(config))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["strategy=fedavg", "task.model=linear", "task.model_options={bias: false}", "personal=intercept"],
            r"the model's last layer '1' is not a linear layer with a bias for each of its 10 outputs; use one",
        ),
        (
            ["experiment=digits_autoencoder", "strategy=clove", "personal=intercept"],
            r"personal=intercept: shifts logits or one value, and task.loss=reconstruction",
        ),
        (["strategy=local", "personal=intercept"], r"personal=intercept: strategy local has no such choice"),
    ],
)
def test_what_has_no_intercept_is_refused_before_any_work(given: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(given)


@pytest.mark.parametrize("why", ["", "kept", "few records"])
def test_a_node_that_keeps_its_statistics_or_has_few_records_says_nothing_of_its_offset(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose([*SMALL, "strategy=fedavg"])
    task = build_task(config)
    settings: Any = {
        **message_settings(config, task), kinds.SERVER_ROUND: 1, kinds.CLIENT_NUMBER: 0, kinds.HEAD: ["3"]
    }  # fmt: skip
    content = RecordDict(
        {kinds.CONFIG: ConfigRecord(settings), kinds.ARRAYS: bank.model(build_models(config, task), 0)}
    )
    # With it Flower builds messages outside of its own processes.
    LocalGrid(app, 6)
    message = message_to(content, 1, INTERCEPT)
    node: dict[str, Any] = {"partition-id": 0, "num-partitions": 6, kinds.SHARE_STATISTICS: why != "kept"}
    monkeypatch.setattr(Client, "is_simulated", False)
    client = Client(message, Context(1, 1, node, RecordDict(), {}))
    if why == "few records":
        data = client.data
        few = replace(data, x_train=data.x_train[: MIN_RECORDS - 1], y_train=data.y_train[: MIN_RECORDS - 1])
        monkeypatch.setattr(Client, "data", few)
    found = codec.read(Intercept, intercept(client), W=9)
    assert (found.offsets == 0).all() == bool(why)
    assert (found.variances == kinds.DIVERGED).all() == bool(why)
    # No information: the client has the common intercept, and does not count for the others'.
    others = np.append(found.offsets[0], [2.0, -4.0]), np.append(found.variances[0], [1.0, 1.0])
    if why:
        assert shrunk(*others) == pytest.approx([0.0, 1.8, -3.6])
