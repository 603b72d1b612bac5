"""Random effects: the mixed model, what clients send for it, and whose model is tested and saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, RecordDict
from safetensors.numpy import load_file

from florets.client_app.app import app
from florets.client_app.client import Client
from florets.commands.main import main
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.random_effects.client import terms
from florets.strategies.random_effects.messages import TERMS, OwnTerms, contrasts
from florets.strategies.random_effects.mixed_model import MixedModel, Penalty, Terms, fit
from florets.task.training.newton import second_order
from florets.task.wire import bank, codec, kinds
from florets.task.wire.evaluation import MIN_RECORDS
from florets.task.wire.records import MalformedMessage
from tests.fakes import message_to
from tests.method_runs import SMALL, LosingGrid, play

FREE = Penalty(np.zeros(2), np.zeros((2, 2)))
INTERCEPT, SLOPES = np.array([False, True]), np.array([True, True])


def terms_of(
    x: np.ndarray, y: np.ndarray, owner: np.ndarray, loss: str = "squared_error", places: np.ndarray | None = None
) -> Terms:
    """Terms of owners' linear models of one output, or of two classes, at some deviations from 0."""
    count, width = owner.max() + 1, 1 if loss == "squared_error" else 2
    basis = contrasts(width, x.shape[1])
    places = np.zeros((count, basis.shape[1])) if places is None else places
    own = [second_order(basis @ places[i], x[owner == i], y[owner == i], loss) for i in range(count)]
    return Terms(
        places,
        np.array([one.value for one in own]),
        np.stack([one.gradient @ basis for one in own]),
        np.stack([basis.T @ one.hessian @ basis for one in own]),
        np.bincount(owner).astype(np.float64),
        basis.shape[1] // (x.shape[1] + 1),
        is_quadratic=width == 1,
    )


def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """12 owners of 5 to 80 records with intercepts and slopes of their own: input, value, owner."""
    rng = np.random.default_rng(46)
    owner = np.repeat(np.arange(12), [5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 80])
    x = rng.normal(size=owner.size)
    y = 1 + 0.5 * x + rng.normal(size=12)[owner] + 0.6 * rng.normal(size=12)[owner] * x
    return (x - x.mean())[:, None], y + 0.8 * rng.normal(size=owner.size), owner


@pytest.mark.parametrize(
    ("is_random", "common", "variances", "residual", "effects"),
    [
        # By statsmodels 0.14, MixedLM(reml=True), "y ~ x" with re_formula="1"; effects of owners 0, 5, 11.
        (INTERCEPT, [0.306452, 0.612983], [0.0, 1.047169], 0.850591, [[0, 0.543933], [0, -0.044535], [0, 0.713829]]),
        # The same with vc_formula={"s": "0 + x"}: slopes that are independent of the intercepts.
        (
            *(SLOPES, [0.302478, 0.590309], [0.180175, 1.005105], 0.636890),
            [[-0.281580, 0.577571], [-0.368097, -0.052462], [-0.540235, 0.709955]],
        ),
    ],
)
def test_values_are_fitted_as_statsmodels_fits_them(
    is_random: np.ndarray, common: Any, variances: Any, residual: float, effects: Any
) -> None:
    x, y, owner = table()
    found = fit(terms_of(x, y, owner), is_random, FREE, caution=0.0, rests=1e-9)
    assert found.common == pytest.approx(common, abs=2e-5)
    assert found.variances / np.array([x.var(), 1.0]) == pytest.approx(variances, rel=1e-4, abs=1e-9)
    assert found.residual == pytest.approx(residual, rel=1e-4)
    assert found.effects[[0, 5, 11]] == pytest.approx(np.array(effects), abs=5e-5)


def two_classes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """40 persons of 24 records, whose log odds differ by 1.2."""
    rng = np.random.default_rng(7)
    owner, x = np.repeat(np.arange(40), 24), rng.normal(size=960)
    logit = -0.3 + 0.8 * x + 1.2 * rng.normal(size=40)[owner]
    return x[:, None], (rng.random(960) < 1 / (1 + np.exp(-logit))).astype(np.int64), owner


def passes(x: np.ndarray, y: np.ndarray, owner: np.ndarray, is_random: np.ndarray, count: int) -> MixedModel:
    """So many passes, each at what the last one found."""
    places = None
    for _ in range(count):
        found = fit(terms_of(x, y, owner, "cross_entropy", places), is_random, FREE, rests=1e-7)
        places = found.common + found.effects
    return found


def test_classes_are_fitted_as_by_quadrature() -> None:
    x, y, owner = two_classes()
    found = passes(x, y, owner, INTERCEPT, 3)
    # Maximum likelihood by Gauss-Hermite quadrature of 60 nodes: 0.851, -0.242, a variance of 1.627; the posterior
    # means of persons 0, 1, 20, 39. Penalised quasi-likelihood is known to lie a little below.
    assert found.common == pytest.approx([0.851, -0.242], abs=0.04)
    assert found.variances[1] == pytest.approx(1.627, rel=0.1)
    assert found.effects[[0, 1, 20, 39], 1] == pytest.approx([2.027, 2.509, -0.315, -2.433], abs=0.2)


def test_it_holds_pooled_and_alone_as_its_limits() -> None:
    rng = np.random.default_rng(3)
    owner, x = np.repeat(np.arange(30), 20), rng.normal(size=(600, 3))
    alike = x @ [1.0, -1.0, 0.5] + rng.normal(size=600)
    free = Penalty(np.zeros(4), np.zeros((4, 4)))
    found = fit(terms_of(x, alike, owner), np.ones(4, bool), free)
    columns = np.column_stack([x, np.ones(600)])
    assert found.common == pytest.approx(np.linalg.lstsq(columns, alike, rcond=None)[0], abs=0.02)
    assert np.abs(found.effects).max() < 0.1
    own = 10 * rng.normal(size=(30, 4))
    unlike = np.einsum("ij,ij->i", columns, own[owner]) + 0.01 * rng.normal(size=600)
    found = fit(terms_of(x, unlike, owner), np.ones(4, bool), free)
    alone = np.stack([np.linalg.lstsq(columns[owner == i], unlike[owner == i], rcond=None)[0] for i in range(30)])
    assert found.common + found.effects == pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize("records", ["one owner", "collinear", "exact", "one class", "few"])
@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_whatever_records_there_are_the_fit_is_finite_and_near_them(records: str, loss: str) -> None:
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(1 if records == "one owner" else 6), 5 if records == "few" else 30)
    x = rng.normal(size=(owner.size, 8))
    if records == "collinear":
        x[:, 4:] = x[:, :4] + 1e-6 * rng.normal(size=(owner.size, 4))
    y = x[:, 0] + (0.0 if records == "exact" else 0.5) * rng.normal(size=owner.size)
    if loss == "cross_entropy":
        y = (y > 0).astype(np.int64) * (records != "one class")
    pull = Penalty(np.zeros(9), 1e-3 * np.eye(9))
    places = None
    for _ in range(4):
        found = fit(terms_of(x, y, owner, loss, places), np.ones(9, bool), pull)
        places = found.common + found.effects
        assert np.isfinite(places).all()
    after, before = terms_of(x, y, owner, loss, places), terms_of(x, y, owner, loss)
    assert after.values.sum() < before.values.sum()
    outputs = np.einsum("ij,ij->i", np.column_stack([x, np.ones(len(x))]), places[owner])
    assert np.abs(outputs).max() < 50


@pytest.mark.parametrize(
    ("host", "method"),
    [("fedavg", "slopes"), ("clove", "intercept"), ("ifca", "slopes"), ("discovery", "intercept")],
)
def test_training_and_groups_are_those_without_the_method_to_the_bit(host: str, method: str) -> None:
    more = (f"strategy={host}", "num_rounds=3", "eval_every=3")
    found, plain = play(*more, f"personal={method}"), play(*more)
    assert found.final == plain.final
    assert [report.assignment for report in found.reports] == [report.assignment for report in plain.reports]
    personal = found.strategy.personal
    assert personal is not None
    own = personal.own_models(found.models, found.strategy.assignment)
    assert set(own) == set(found.strategy.assignment)
    last = found.models.layout.mask(["3.bias"] if method == "intercept" else ["3"])
    for key, row in own.items():
        group = found.models.bank[found.strategy.assignment[key]]
        assert (row[~last] == group[~last]).all()
        assert row[last] != pytest.approx(group[last])


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


def test_a_client_whose_terms_are_lost_tests_its_groups_model() -> None:
    more = ("strategy=fedavg", "num_rounds=1", "eval_every=1")
    lost = {(TERMS, 1, 3)}
    found, plain = play(*more, "personal=intercept", lost=lost), play(*more)
    tests, without = found.reports[-1].evaluations, plain.reports[-1].evaluations
    assert {key for key in tests if tests[key].loss == without[key].loss} == {"3"}


LINES = (
    *("experiment=cfl_gp/linear", "strategy=fedavg", "num_clients=6", "num_rounds=4", "eval_every=4"),
    *("task.data_options.train_per_line=60", "task.data_options.test_per_line=20", "averaging=models"),
    *("task.model=linear", "task.model_options={bias: true}"),
)


class LyingGrid(LosingGrid):
    """A grid on which client 3 says that its errors, or its inputs, are a million times as large."""

    what = "errors"

    def pull_messages(self, message_ids: Any) -> list[Message]:
        replies = super().pull_messages(message_ids)
        for reply in replies:
            node = int(self._contexts[reply.metadata.src_node_id].node_config["partition-id"])
            if (
                node == 3
                and kinds.SECOND_ORDER in reply.content.array_records
                and "value" in reply.content["metrics"]
            ):
                record = reply.content.array_records[kinds.SECOND_ORDER]
                errors, inputs = (1e6, 1.0) if self.what == "errors" else (1.0, 1e6)
                by = np.array([inputs, 1.0])
                record[kinds.GRADIENT] = Array(record[kinds.GRADIENT].numpy() * errors * by)
                record[kinds.HESSIAN] = Array(record[kinds.HESSIAN].numpy() * by[:, None] * by)
                reply.content["metrics"]["value"] *= errors**2
        return replies


@pytest.mark.parametrize("what", ["errors", "inputs"])
def test_a_client_that_lies_without_bounds_is_refused_and_the_others_have_their_own(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = play(*LINES, "personal=slopes")
    monkeypatch.setattr("tests.method_runs.LosingGrid", LyingGrid)
    monkeypatch.setattr(LyingGrid, "what", what)
    found = play(*LINES, "personal=slopes")
    assert found.strategy.personal is not None
    assert plain.strategy.personal is not None
    own, before = found.strategy.personal.kept.effects, plain.strategy.personal.kept.effects
    assert set(before) - set(own) == {"3"}
    for key in own:
        assert own[key] == pytest.approx(before[key], abs=0.2)


@pytest.mark.parametrize(
    ("value", "gradient", "hessian", "problem"),
    [
        (1.0, [1.0, 0.0], [[4.0, 0.0], [0.0, 4.0]], None),
        (1.0, [0.0, 0.0], [[4.0, 1.0], [0.0, 4.0]], "not symmetric"),
        (1.0, [0.0, 0.0], [[4.0, 5.0], [5.0, 4.0]], "negative eigenvalue"),
        (1.0, [2.9, 0.0], [[4.0, 0.0], [0.0, 4.0]], "steeper than its errors"),
    ],
)
def test_terms_that_no_squared_errors_have_are_refused(
    value: float, gradient: list[float], hessian: list[list[float]], problem: str | None
) -> None:
    sent = codec.pack(OwnTerms, value=value, gradient=np.array(gradient), hessian=np.array(hessian), num_examples=4)

    def read() -> None:
        codec.read(OwnTerms, sent, P=2).check_squares()

    if problem is None:
        read()
    else:
        with pytest.raises(MalformedMessage, match=problem):
            read()


@pytest.mark.parametrize("why", ["", "kept", "few records"])
def test_a_node_that_keeps_its_statistics_or_has_few_records_says_nothing(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose([*SMALL, "strategy=fedavg"])
    task = build_task(config)
    settings: Any = {
        **message_settings(config, task), kinds.SERVER_ROUND: 1, kinds.CLIENT_NUMBER: 0,
        kinds.HEAD: ["3.weight", "3.bias"],
    }  # fmt: skip
    content = RecordDict(
        {kinds.CONFIG: ConfigRecord(settings), kinds.ARRAYS: bank.model(build_models(config, task), 0)}
    )
    # With it Flower builds messages outside of its own processes.
    LocalGrid(app, 6)
    message = message_to(content, 1, TERMS)
    node: dict[str, Any] = {"partition-id": 0, "num-partitions": 6, kinds.SHARE_STATISTICS: why != "kept"}
    monkeypatch.setattr(Client, "is_simulated", False)
    client = Client(message, Context(1, 1, node, RecordDict(), {}))
    if why == "few records":
        data = client.data
        few = replace(data, x_train=data.x_train[: MIN_RECORDS - 1], y_train=data.y_train[: MIN_RECORDS - 1])
        monkeypatch.setattr(Client, "data", few)
    found = codec.read(OwnTerms, terms(client), P=9 * (8 + 1))
    assert found.is_told == (not why)
    assert (found.value == 0) == (found.gradient == 0).all() == bool(why)
