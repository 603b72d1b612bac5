"""Replies of mixed regression that break a rule are refused with the rule."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from florets.task.wire import Layout, MalformedMessage, kinds
from florets.task.wire.moments import read_anchor_update, read_factors, read_term
from florets.task.wire.soft import read_soft_update
from tests.fakes import model

SHAPE = (2, 3, 1)
LAYOUT = Layout.of(model(0.0))
SENT = np.array([[5.0, 0.0], [6.0, 0.0]])


def reply(arrays: dict[str, object], **metrics: object) -> RecordDict:
    packed = {name: value if isinstance(value, Array) else Array(value) for name, value in arrays.items()}
    numbers = {kinds.NUM_EXAMPLES: 4, **{name.replace("__", "-"): value for name, value in metrics.items()}}
    return RecordDict({kinds.ARRAYS: ArrayRecord(packed), kinds.METRICS: MetricRecord(numbers)})


def values(fill: float = 1.0, dtype: str = "float32", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.full(shape, fill, dtype=dtype)


def test_whole_replies_are_read():
    term = read_term(reply({"terms": values(2.0)}), SHAPE)
    assert (term.values.tolist(), term.num_examples) == (values(2.0).tolist(), 4)
    one = read_factors(reply({"left": values()}), SHAPE, symmetric=True)
    assert one.left is one.right
    two = read_factors(reply({"left": values(), "right": values(3.0)}), SHAPE, symmetric=False)
    assert two.right[0, 0, 0] == 3.0
    update = read_anchor_update(reply(model(1.5), train_loss=0.1, residual=0.2), LAYOUT)
    assert (update.vector.tolist(), update.residual, update.model) == ([1.5, 0.0], 0.2, 0)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (reply({"terms": values(shape=(2, 3, 2))}), r"\[2, 3, 2\].* not float32\[2, 3, 1\]"),
        (reply({"terms": values(dtype="float64")}), "float64"),
        (reply({"terms": values(np.nan)}), "NaN or infinite"),
        (reply({"terms": values(np.inf)}), "NaN or infinite"),
        (reply({"other": values()}), r"holds \['other'\], not \['terms'\]"),
        (reply({"terms": values(), "more": values()}), "not \\['terms'\\]"),
        (reply({"terms": values()}, surprise=1), "surprise"),
        (reply({"terms": values()}, num__examples=0), "integer from 1"),
        (reply({"terms": Array("float32", SHAPE, "numpy.ndarray", b"no header, but long enough for it")}), "header"),
    ],
)
def test_a_broken_term_is_refused(content: RecordDict, rule: str):
    with pytest.raises(MalformedMessage, match=rule):
        read_term(content, SHAPE)


def test_factors_must_be_those_asked_for():
    with pytest.raises(MalformedMessage, match=r"not \['left', 'right'\]"):
        read_factors(reply({"left": values()}), SHAPE, symmetric=False)
    with pytest.raises(MalformedMessage, match=r"not \['left'\]"):
        read_factors(reply({"left": values(), "right": values()}), SHAPE, symmetric=True)


@pytest.mark.parametrize("residual", [-0.1, float("nan"), [1.0]])
def test_a_residual_is_a_number_of_at_least_0(residual: object):
    with pytest.raises(MalformedMessage, match="residual"):
        read_anchor_update(reply(model(1.5), train_loss=0.1, residual=residual), LAYOUT)


def soft(shares: object = (0.25, 0.75), arrays: dict[str, object] | None = None) -> RecordDict:
    both = {f"{k}/{name}": array for k in (0, 1) for name, array in model(float(k)).items()}
    shares = list(shares) if isinstance(shares, tuple) else shares
    return reply(both if arrays is None else arrays, train_loss=0.1, memberships=shares, losses=[1.0, 0.5])


def test_a_soft_update_holds_all_models():
    update = read_soft_update(soft(), LAYOUT, SENT)
    assert (update.model, update.vectors.tolist()) == (1, [[0.0, 0.0], [1.0, 0.0]])
    assert update.memberships.tolist() == [0.25, 0.75]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (soft((0.5, 0.6)), "sum to 1"),
        (soft((-0.5, 1.5)), "not negative"),
        (soft((float("nan"), 1.0)), "sum to 1"),
        (soft((1.0,)), "not 2 shares"),
        (soft(1.0), "not 2 shares"),
        (soft(arrays={f"0/{name}": array for name, array in model(0.0).items()}), "the 2 models"),
        (soft(arrays={f"{k}/{n}": a for k in (0, 99999999) for n, a in model(0.0).items()}), "the 2 models"),
    ],
)
def test_a_broken_soft_update_is_refused(content: RecordDict, rule: str):
    with pytest.raises(MalformedMessage, match=rule):
        read_soft_update(content, LAYOUT, SENT)


def test_a_model_without_weight_must_come_back_as_it_was_sent():
    unchanged = {f"{k}/{name}": array for k, theta in ((0, 5.0), (1, 1.0)) for name, array in model(theta).items()}
    assert read_soft_update(soft((0.0, 1.0), unchanged), LAYOUT, SENT).vectors[0, 0] == 5.0
    for shares in ((0.0, 1.0), (1e-12, 1.0)):
        with pytest.raises(MalformedMessage, match="model 0 has no weight"):
            read_soft_update(soft(shares), LAYOUT, SENT)
