"""Rows of folds on the wire: what a row holds, its size, what is refused; and how clients' data are divided."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.shared.fold_round import FoldPlan
from florets.task.wire import payload_bytes
from florets.task.wire.folds import RowForm


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_a_full_row_is_the_change_at_unit_length() -> None:
    form = RowForm.of("full", None, 2, 2)
    sent = form.pack(np.array([[3.0, 4.0], [0.0, -2.0]], dtype=np.float32), rng())
    assert sent.dtype == np.float32
    np.testing.assert_array_equal(sent, np.array([[0.6, 0.8], [0.0, -1.0]], dtype=np.float32))
    np.testing.assert_array_equal(form.unpack(sent), sent)


def test_signs_are_those_of_some_parameters_eight_in_a_byte() -> None:
    form = RowForm("signs", 5, 5)
    changes = np.array([[1.0, -1.0, 0.5, 0.0, 2.0]], dtype=np.float32)
    sent = form.pack(changes, rng())
    # 1 0 1 0 1, and three bits that say nothing.
    assert sent.tolist() == [[0b10101000]]
    assert form.unpack(sent).tolist() == [[1.0, -1.0, 1.0, -1.0, 1.0]]
    few = RowForm("signs", 9, 40)
    values = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    places = np.sort(rng().choice(40, 9, replace=False))
    assert few.pack(values, rng()).shape == (3, 2)
    np.testing.assert_array_equal(few.unpack(few.pack(values, rng())), np.sign(values[:, places]))


def test_a_projection_keeps_cosines_and_is_the_same_for_all_clients() -> None:
    form = RowForm.of("projection", None, 20_000, 4)
    assert form.width == 1024
    one, noise = np.random.default_rng(1).standard_normal((2, 20_000)).astype(np.float32)
    rows = np.stack([one, one + noise, -one])
    sent = form.pack(rows, rng())
    assert sent.dtype == np.float16
    cosines = (found := form.unpack(sent)) @ found.T
    # A cosine of 1 / sqrt(2), to about 1 / sqrt(1024).
    assert cosines[0, 1] == pytest.approx(2**-0.5, abs=0.08)
    assert cosines[0, 2] == pytest.approx(-1, abs=1e-3)
    np.testing.assert_array_equal(form.pack(rows[1:2], rng()), sent[1:2])


@pytest.mark.parametrize("folds", [3, 4, 8])
@pytest.mark.parametrize("size", [20, 300, 4810, 10**6])
@pytest.mark.parametrize("upload", ["projection", "signs"])
def test_the_rows_of_a_client_take_16_kb_at_most(upload: str, size: int, folds: int) -> None:
    form = RowForm.of(upload, None, size, folds)  # type: ignore[arg-type]
    empty = RecordDict({"folds": ArrayRecord({"folds": Array(np.zeros((folds, form.columns), form.dtype))})})
    assert payload_bytes(empty) <= 16_000


def test_a_projection_that_saves_nothing_is_the_row_itself() -> None:
    assert RowForm.of("projection", None, 200, 4) == RowForm("full", 200, 200)
    assert RowForm.of("projection", None, 4810, 4) == RowForm("projection", 962, 4810)
    assert RowForm.of("projection", 64, 4810, 4) == RowForm("projection", 64, 4810)
    assert RowForm.of("signs", None, 4810, 4) == RowForm("signs", 1024, 4810)
    assert RowForm.of("signs", None, 100, 4) == RowForm("signs", 100, 100)


@pytest.mark.parametrize(("upload", "width"), [("other", 2), ("full", 3), ("signs", 0), (None, 1)])
def test_a_form_that_nothing_has_is_refused(upload: object, width: int) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        RowForm.read(upload, width, 2)


# How clients' data are divided


@pytest.mark.parametrize(("count", "size"), [(900, 14), (56, 14), (55, 13), (32, 8), (31, 0), (1, 0)])
def test_clients_with_few_samples_have_smaller_folds_or_none(count: int, size: int) -> None:
    assert FoldPlan(4, 14, 3).size_of(count) == size


PLANS = [
    ([288] * 20, FoldPlan(4, 25, 3)),
    ([100] * 20, FoldPlan(4, 25, 2)),
    ([30] * 60, FoldPlan(3, 10, 5)),
    ([90] * 5, FoldPlan(8, 11, 4)),
    ([39] * 5, FoldPlan(3, 13, 4)),
    # Half of the clients have enough: the smallest of these decides.
    ([10, 20, 48, 500], FoldPlan(8, 6, 4)),
    # Nobody has enough.
    ([4] * 10, FoldPlan(3, 1, 10)),
]


@pytest.mark.parametrize(("counts", "plan"), PLANS)
def test_all_clients_have_folds_of_one_size_and_train_as_many_steps(counts: list[int], plan: FoldPlan) -> None:
    assert FoldPlan.of(counts) == plan
    assert FoldPlan.of(counts[::-1]) == plan
