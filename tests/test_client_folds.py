"""The real ClientApp's `train.folds` and `query.folds` on a small task, against training by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict

from florets.conf.compose import compose
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.shared.messages import QUERY_FOLDS, TRAIN_FOLDS, FoldRows, FoldUpdate
from florets.task.randomness import Purpose, generator
from florets.task.training.folds import disjoint_folds, estimates_on, near_duplicates
from florets.task.training.linear import LinearNames
from florets.task.training.settings import Training
from florets.task.wire import Layout, bank, codec, kinds
from florets.task.wire.folds import RowForm
from florets.task.wire.replies import read_update
from tests.fakes import asker

CONFIG = compose(["num_clients=4", "k=2", "task.model_options={hidden: [8]}"])
TASK = build_task(CONFIG)
BANK = build_models(CONFIG, TASK)
MODEL, OTHER = bank.model(BANK, 0), bank.model(BANK, 1)
LAYOUT = Layout.of(MODEL)
SIZE = int(LAYOUT.trained.sum())
FULL = RowForm(SIZE, SIZE)
ASK = {
    kinds.NUM_FOLDS: 3, kinds.FOLD_SIZE: 10, kinds.FOLD_STEPS: 2,
    kinds.FOLD_WIDTH: SIZE, kinds.FOLD_SEED: 1, kinds.REPLY: kinds.REPLY_MODEL,
}  # fmt: skip

Ask = Callable[..., RecordDict]


@pytest.fixture
def ask() -> Ask:
    return asker(message_settings(CONFIG, TASK))


def rows_of(ask: Ask, folds: int = 3, form: RowForm = FULL, **settings: object) -> np.ndarray:
    """What `query.folds` sends of the model."""
    own = {**ASK, **{name.replace("_", "-"): value for name, value in settings.items()}}
    return codec.read(FoldRows, ask(QUERY_FOLDS, own, arrays=MODEL), form=form, folds=folds).rows


def by_hand(start: ArrayRecord, rate: float = 0.02) -> np.ndarray:
    """Two steps of Adam on each fold, by PyTorch's own; rare classes weigh more."""
    data = TASK.client(0)
    folds = disjoint_folds(data.x_train, data.y_train, 3, 10, generator(CONFIG.seed, 2, Purpose.FOLDS, 0))
    rows = []
    for fold in folds:
        module = TASK.build_model()
        module.load_state_dict({name: torch.from_numpy(array.numpy().copy()) for name, array in start.items()})
        optimizer = torch.optim.Adam(module.parameters(), lr=rate)
        labels = data.y_train[fold].tolist()
        weights = torch.tensor([labels.count(label) ** -0.5 for label in labels])
        for _ in range(2):
            optimizer.zero_grad()
            losses = torch.nn.functional.cross_entropy(
                module(data.x_train[fold]), data.y_train[fold], reduction="none"
            )
            ((losses * weights).sum() / weights.sum()).backward()
            optimizer.step()
        after = np.concatenate([value.detach().numpy().ravel() for value in module.state_dict().values()])
        change = after - LAYOUT.flatten(start)
        rows.append(change / np.linalg.norm(change))
    return np.stack(rows)


@pytest.mark.slow
def test_rows_are_what_adam_changes_on_each_fold_and_the_update_is_that_of_train(ask: Ask) -> None:
    update = codec.read(FoldUpdate, ask(TRAIN_FOLDS, ASK, arrays=MODEL), layout=LAYOUT, model=0, form=FULL, folds=3)
    np.testing.assert_allclose(update.rows, by_hand(MODEL), atol=2e-5)
    plain = read_update(ask(kinds.TRAIN, ASK, arrays=MODEL), LAYOUT, 0)
    assert update.vector.tobytes() == plain.vector.tobytes()
    alone = codec.read(FoldRows, ask(QUERY_FOLDS, ASK, arrays=MODEL), form=FULL, folds=3)
    np.testing.assert_array_equal(alone.rows, update.rows)
    assert alone.num_examples == update.num_examples


def test_the_common_model_is_another_one_where_training_has_gone_on(ask: Ask) -> None:
    update = codec.read(
        FoldUpdate, ask(TRAIN_FOLDS, ASK, arrays=MODEL, common=OTHER), layout=LAYOUT, model=0, form=FULL, folds=3
    )
    np.testing.assert_allclose(update.rows, by_hand(OTHER), atol=2e-5)


@pytest.mark.parametrize(("asked", "rows"), [(True, 1), (False, 3)])
def test_records_of_one_class_are_one_row_where_the_server_asks_for_that(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, asked: bool, rows: int
) -> None:
    data = TASK.client(0)
    alike = replace(data, y_train=torch.zeros_like(data.y_train))
    monkeypatch.setattr("florets.client_app.client.Client.data", alike)
    assert len(rows_of(ask, fold_classes=asked)) == rows


def test_rows_are_compressed_as_the_server_says(ask: Ask) -> None:
    form = RowForm(40, SIZE)
    rows = rows_of(ask, form=form, fold_width=40)
    full = by_hand(MODEL).astype(np.float32)
    expected = form.unpack(form.pack(full, generator(1, 0, Purpose.FOLD_SKETCH)))
    assert np.mean(np.abs(rows - expected) < 1e-2) > 0.95


@pytest.mark.parametrize("bias", ["b", None])
def test_estimates_are_distances_from_the_common_model_in_standard_errors(bias: str | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3)) @ [[1.0, 0.9, 0], [0, 1, 0], [0, 0, 5]] + 1.0
    y = x @ [1.0, -2.0, 0.5] + rng.standard_normal(30)
    state = {"w": torch.tensor([[0.5, 0.0, 0.0]])} | ({} if bias is None else {bias: torch.tensor([0.25])})
    inputs = np.hstack([x, np.ones((30, 1))]) if bias else x
    start = np.array([0.5, 0, 0, 0.25][: inputs.shape[1]])
    parts = [np.arange(10), np.arange(10, 30)]
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    rows = estimates_on(LinearNames("w", bias), state, *tensors, "squared_error", parts, Training())
    for row, part in zip(rows, parts, strict=True):
        hessian = inputs[part].T @ inputs[part] + np.eye(len(start))
        change = np.linalg.solve(hessian, inputs[part].T @ (y[part] - inputs[part] @ start))
        assert row @ row == pytest.approx(change @ hessian @ change, rel=1e-4)
        if bias:
            # The level, where coefficients stay those of the common model.
            assert row[-1] == pytest.approx(hessian[-1] @ change / np.sqrt(hessian[-1, -1]), rel=1e-4)


def test_equal_records_are_in_one_fold() -> None:
    # Six different records, each there five times.
    x = torch.arange(6.0).repeat(5).reshape(30, 1)
    for seed in range(20):
        folds = disjoint_folds(x, torch.zeros(30), 3, 10, np.random.default_rng(seed))
        inside = [set(x[torch.from_numpy(fold)].flatten().tolist()) for fold in folds]
        assert sum(map(len, inside)) == len(set().union(*inside)) == 6
        assert [len(fold) for fold in folds] == [10, 10, 10]


def test_near_duplicates_by_hand() -> None:
    # Pairs 1 apart, 10 between them: on a line, in the order of two shuffled halves.
    line = np.concatenate([np.arange(9) * 11.0, np.arange(9) * 11.0 + 1.0])[:, None]
    units = near_duplicates(line)
    assert units is not None
    assert units.tolist() == [*range(9), *range(9)]
    # Seven pairs are too few units, and as many units as folds are needed.
    assert near_duplicates(np.delete(line, [7, 8, 16, 17], axis=0)) is None
    assert near_duplicates(line, least=10) is None
    # Links that differ little are no gap.
    assert near_duplicates(np.arange(20.0)[:, None] ** 1.5) is None
