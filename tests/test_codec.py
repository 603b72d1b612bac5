"""The codec: replies that break a rule are refused with the rule, and without what was measured."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from florets.task.wire import MalformedMessage, codec, kinds
from florets.task.wire.codec import MAX_EXAMPLES, Flag, LossList, Number, Numbers, Tensor, Text
from tests.replies import LAYOUT, MODEL, READERS

VALID = {kind: valid for kind, valid, _ in READERS}
READ = {kind: read for kind, _, read in READERS}
NAN = float("nan")


def floats(*values: Any) -> Array:
    return Array(np.array(values, dtype=np.float32))


def changed(kind: str, record: str, name: str | None, value: Any) -> RecordDict:
    """A valid reply with one entry, or one record, replaced; None: without it."""
    content = VALID[kind]()
    place: Any = content if name is None else content[record]
    name = record if name is None else name
    if value is None:
        del place[name]
    else:
        place[name] = value
    return content


METRICS, ARRAYS = kinds.METRICS, kinds.ARRAYS
BROKEN: list[tuple[str, str, str | None, Any, str]] = [
    # Records and names.
    (kinds.TRAIN, METRICS, None, None, r"holds the records \['arrays'\], not \['arrays', 'metrics'\]"),
    (kinds.TRAIN, ARRAYS, None, MetricRecord(), "record 'arrays' is a MetricRecord, and must be ArrayRecord"),
    (kinds.TRAIN, METRICS, "extra", 1.0, "the reply holds the metrics .*extra"),
    (kinds.TRAIN, ARRAYS, "extra", MODEL["count"], "4 arrays came, the model has 3"),
    ("probe", "profile", None, ArrayRecord({"other": floats(1)}), r"\['other'\], not \['profile'\]"),
    # Numbers.
    *((kinds.TRAIN, METRICS, kinds.NUM_EXAMPLES, n, "integer from 1") for n in (0, -1, MAX_EXAMPLES + 1, 2.0, [1])),
    *((kinds.TRAIN, METRICS, kinds.TRAIN_LOSS, x, "is not a finite number") for x in (NAN, 10**400, [1.0])),
    *((kinds.TRAIN_SELECT, METRICS, kinds.CHOSEN_MODEL, x, "model") for x in (2, -1, 0.0)),
    (kinds.EVALUATE, METRICS, kinds.EVAL_ACCURACY, 1.5, "eval_acc is 1.5, not from 0 to 1"),
    # Lists.
    (kinds.LOSSES, METRICS, "losses", [1.0], "1 losses came, not 2"),
    (kinds.LOSSES, METRICS, "losses", 1.0, "no list of losses came"),
    *(
        (kinds.LOSSES, METRICS, "losses", [1.0, x], "NaN, negative or larger")
        for x in (float("inf"), NAN, -0.1, 1e300)
    ),
    ("traced", METRICS, kinds.STEP_LOSSES, [1.0], "1 step-losses came, not 2"),
    *(("mixture", METRICS, kinds.SHARES, x, "shares") for x in ([0.25, 0.5], [-0.5, 1.5], [NAN, 1.0], [1.0], 1.0)),
    ("mixture", METRICS, "class-sums", [-1.0, 3.5, 3.5, 4.0], "no numbers from 0"),
    ("mixture", METRICS, "class-sums", [1.5, 1.0, 30.5, 4.0], "do not sum to the shares"),
    *(("closest", METRICS, "closest", x, "closest") for x in ([4], 4, [11, -1], [4.0, 6.0], [4, 4])),
    *(("kmeans", METRICS, "sizes", x, "sizes") for x in (5, [], [1] * 5, [0, 1], [2.5, 1.0], [10**9, 1])),
    *(("vectors", METRICS, "places", x, "places") for x in ([2, 0], [0, 0], [0, 3], [0.0, 2.0], [], 1)),
    ("split", METRICS, kinds.LABEL_COUNTS, [4, 0, 7], "do not sum to the 10 examples"),
    ("split", METRICS, kinds.LABEL_COUNTS, [4, 2, 4], "2 prototypes came of 3 classes"),
    # Arrays: of a shape, a dtype, finite, and in a range.
    ("subspace", ARRAYS, "terms", Array(np.ones((2, 3, 2), np.float32)), r"float32\[2, 3, 2\], 2 for k, not 4"),
    ("subspace", ARRAYS, "terms", floats(1, 2), "has 1 dimensions, not 3"),
    *(("probe", "profile", "profile", floats(*[x] * 5), "NaN or infinite values") for x in (NAN, np.inf)),
    ("kmeans", ARRAYS, "centres", floats([1e30, 1, 1], [1, 1, 1]), "beyond 1e"),
    ("vectors", ARRAYS, "principal", floats([1, 0], [0, 0], [1, 1]), "another length than 1"),
    ("descriptor", ARRAYS, "descriptor", floats([1, 1], [-0.5, 1]), "a spread of the descriptor is negative"),
    ("rows", "folds", "folds", Array(np.ones((3, 2), np.float16)), r"\[3, 2\]"),
    ("folds", "folds", "folds", floats([NAN, 1, 1], [1, 1, 1]), "NaN or infinite"),
    # Models.
    ("bilevel", kinds.GLOBAL, "count", None, "2 arrays came, the model has 3"),
    ("mixed", kinds.MIX, "weight", floats([0.5] * 3, [1.5] * 3), "not from 0 to 1"),
    ("mixture", ARRAYS, "2/weight", MODEL["weight"], "the 2 models"),
    # What a client says of itself.
    *((kinds.HELLO, kinds.CONFIG, kinds.CLIENT_KEY, x, "client-key") for x in ("", "a\nb", "\x1b[2J", "=1", b"x")),
    (kinds.HELLO, METRICS, kinds.CLUSTER, -5, "true-cluster is -5, not an integer from -1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "record", "name", "value", "rule"), BROKEN)
def test_a_reply_that_breaks_a_rule_is_refused_with_the_rule(
    kind: str, record: str, name: str | None, value: Any, rule: str
) -> None:
    with pytest.raises(MalformedMessage, match=rule):
        READ[kind](changed(kind, record, name, value))


def test_valid_replies_hold_what_was_sent() -> None:
    found: Any = READ["mixture"](VALID["mixture"]())
    assert (found.model, found.shares.tolist()) == (1, [0.25, 0.75])
    np.testing.assert_array_equal(found.vector, LAYOUT.flatten(MODEL))
    split: Any = READ["split"](VALID["split"]())
    assert split.prototypes.tolist() == split.statistics.tolist() == [[0, 1, 2], [0, 0, 0], [3, 4, 5]]
    folds: Any = READ["folds"](VALID["folds"]())
    assert (folds.model, folds.num_examples, folds.others.tolist()) == (0, 10, [0, 1, 2, 3, 4, 5])
    own: Any = READ["own"](VALID["own"]())
    assert (own.numbers, own.arrays["more"].tolist()) == ({"a": 1.5}, [0, 1, 2, 3, 4, 5, 7])
    answer: Any = READ["answer"](VALID["answer"]())
    assert (answer.numbers, answer.arrays["profile"].tolist()) == ({"a": 1.5}, [0, 1, 2, 3, 4])
    diverged: Any = READ[kinds.LOSSES](changed(kinds.LOSSES, METRICS, "losses", [1.0, kinds.DIVERGED]))
    assert diverged.losses.tolist() == [1.0, np.inf]


def test_rows_that_say_nothing_are_left_out() -> None:
    full, sketch = floats([0.6, 0.8, 0], [0, 0, 0]), Array(np.zeros((1, 2), np.float16))
    folds: Any = READ["folds"](changed("folds", "folds", "folds", full))
    # The mean of the others' directions, as of a client with too few samples for folds.
    np.testing.assert_allclose(folds.rows, [[0.6, 0.8, 0]])
    rows: Any = READ["rows"](changed("rows", "folds", "folds", sketch))
    assert rows.rows.shape == (0, 2)


@dataclass(frozen=True)
class Example:
    """One field of each kind."""

    word: Annotated[str, Text()]
    flag: Annotated[bool, Flag()]
    rate: Annotated[float, Number("learning_rate", least=0)]
    table: Annotated[np.ndarray, Numbers("r", "c", integer=True)]
    losses: Annotated[np.ndarray, LossList("r")]
    bits: Annotated[np.ndarray, Tensor("r", 2, dtype="uint8", record="bits")]
    given: int
    number_of_parts: Annotated[int | None, Number(integer=True)] = None


def test_what_is_packed_is_read_again_to_the_bit() -> None:
    bits = np.array([[1, 2], [3, 4]], dtype=np.uint8)
    fields: dict[str, Any] = {"word": "a", "flag": True, "rate": 0.1, "losses": [1.0, kinds.DIVERGED], "bits": bits}
    content = codec.pack(Example, table=np.arange(6).reshape(2, 3), **fields)
    assert dict(content[METRICS]) == {
        "flag": 1,
        "learning_rate": 0.1,
        "table": [0, 1, 2, 3, 4, 5],
        "losses": [1.0, kinds.DIVERGED],
    }
    found = codec.read(Example, content, r=2, c=3, given=7)
    assert (found.word, found.flag, found.rate, found.given, found.number_of_parts) == ("a", True, 0.1, 7, None)
    assert (found.table.tolist(), found.losses.tolist()) == ([[0, 1, 2], [3, 4, 5]], [1.0, np.inf])
    assert (found.bits.tolist(), found.bits.dtype) == ([[1, 2], [3, 4]], np.uint8)
    again = codec.pack(Example, table=found.table, number_of_parts=5, **fields)
    assert codec.read(Example, again, r=2, c=3, given=7).number_of_parts == 5


def test_no_measured_value_stands_in_an_error() -> None:
    for kind, record, name, value, rule in BROKEN:
        if isinstance(value, list | Array) and name is not None:
            with pytest.raises(MalformedMessage) as caught:
                READ[kind](changed(kind, record, name, value))
            values = value.numpy() if isinstance(value, Array) else np.array(value, dtype=np.float64)
            measured = {str(x) for x in values.ravel().tolist() if np.isfinite(x) and x % 1}
            assert not [x for x in measured if x in str(caught.value)], rule
