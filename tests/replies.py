"""A valid reply of each kind, and how it is read."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.strategies.cfl_gp.messages import ProbeUpdate
from florets.strategies.random_effects.messages import OwnTerms
from florets.strategies.shared.messages import BilevelUpdate, FoldRows, FoldUpdate
from florets.strategies.two_phase.messages import LocalFactors, Term
from florets.task.data.tables.description import Description
from florets.task.tested import PartSums
from florets.task.training.figures import sums_of
from florets.task.wire import Layout, codec, kinds
from florets.task.wire.description import pack_description, read_description
from florets.task.wire.evaluation import pack_sums, read_evaluation
from florets.task.wire.flower import INSTALLED
from florets.task.wire.folds import RowForm
from florets.task.wire.replies import Introduction, Losses, SelectedUpdate, TracedUpdate, read_answer, read_update
from florets.zoo.fedala import MixedUpdate
from florets.zoo.fedem import ClassMixtureUpdate
from florets.zoo.fedpac import SplitUpdate
from florets.zoo.fedsoft import ClosestCounts
from florets.zoo.flux import read_descriptor
from florets.zoo.k_fed import LocalCentres
from florets.zoo.pacfl import PrincipalVectors

MODEL = {
    "weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "count": Array(np.array(7, dtype=np.int64)),
    "empty": Array(np.zeros((0, 3), dtype=np.float32)),
}
LAYOUT = Layout.of(MODEL)
NUMBERS: dict[str, Any] = {kinds.NUM_EXAMPLES: 10, kinds.TRAIN_LOSS: 0.5}
CHOICE: dict[str, Any] = {kinds.CHOSEN_MODEL: 1, "losses": [2.0, 1.0]}
LOSSES: dict[str, Any] = {kinds.NUM_EXAMPLES: 10, "losses": [2.0, 1.0], "kept": 0}
TEST: dict[str, Any] = {kinds.NUM_EXAMPLES: 3, kinds.EVAL_LOSS: 0.3, kinds.EVAL_ACCURACY: 0.9}
TESTS: dict[str, Any] = {
    **TEST,
    kinds.VALIDATED + kinds.NUM_EXAMPLES: 2,
    **{
        prefix + name: TEST[name]
        for prefix in (kinds.VALIDATED, kinds.TUNED, kinds.TUNED + kinds.VALIDATED)
        for name in (kinds.EVAL_LOSS, kinds.EVAL_ACCURACY)
    },
}
HELLO: dict[str, Any] = {kinds.NUM_EXAMPLES: 5, kinds.CLUSTER: 1, "num-partitions": 3}
TEXTS: dict[str, Any] = {
    kinds.CLIENT_KEY: "07",
    kinds.DEVICE: "cpu",
    kinds.FINGERPRINT: "f",
    kinds.FLOWER: INSTALLED,
}
DESCRIPTION = Description("archive", 9, 7, shape=(3,), classes=("a", "b"))
BLOCK = Array(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
COUNT = {kinds.NUM_EXAMPLES: 10}
PROBED = {"profile": Array(np.arange(5, dtype=np.float32))}
TWO_MODELS = {f"{number}/{name}": array for number in range(2) for name, array in MODEL.items()}
SIZES: dict[str, Any] = {"sizes": [4, 6]}
POINTS = {"centres": MODEL["weight"]}
ROWS, FULL = {"folds": MODEL["weight"]}, RowForm(3, 3)
SKETCH = {"folds": Array(np.array([[0.6, 0.8], [1.0, 0.0]], dtype=np.float16))}
SECOND = {kinds.GRADIENT: Array(np.array([0.5, -0.5])), kinds.HESSIAN: Array(np.array([[2.0, 1.0], [1.0, 2.0]]))}


MIXED = {kinds.SHARES: [0.25, 0.75], "class-sums": [1.5, 1.0, 3.5, 4.0]}
AXES = Array(np.array([[1, 0], [0, 0], [0, 1]], dtype=np.float32))
SQUARE = Array(np.array([[1, 0.5], [0, 1]], dtype=np.float32))
OWN: dict[str, Any] = {"a": 1.5}
PLACES: dict[str, Any] = {"places": [0, 2]}
HALVES = {"weight": Array(np.full((2, 3), 0.5, dtype=np.float32))}
MIX = Layout.of(HALVES)
SPLIT = NUMBERS | {kinds.LABEL_COUNTS: [4, 0, 6], "spread": 0.1}
FEATURES = {kinds.PROTOTYPES: {kinds.PROTOTYPES: MODEL["weight"]}, "statistics": {"statistics": MODEL["weight"]}}


def reply(
    numbers: dict[str, Any],
    arrays: dict[str, Array] | None = None,
    texts: dict[str, Any] | None = None,
    **others: dict[str, Array],
) -> RecordDict:
    content = RecordDict({kinds.METRICS: MetricRecord(dict(numbers))})
    if arrays is not None:
        content[kinds.ARRAYS] = ArrayRecord(dict(arrays))
    if texts is not None:
        content[kinds.CONFIG] = ConfigRecord(dict(texts))
    for name, record in others.items():
        content[name] = ArrayRecord(dict(record))
    return content


SCORES = np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 2.0], [0.0, 3.0], [0.0, -2.0]])
CLASS_PART = sums_of(SCORES, np.array([1, 0, 0, 1, 0]), 2, np.random.default_rng(0))
VALUE_PART = sums_of(SCORES[:, 1:], np.array([1.0, 0.5, 0.0, 2.0, 1.0]), 0, np.random.default_rng(0))


def with_sums(part: PartSums | None, width: int) -> RecordDict:
    assert part is not None
    test = TEST | {kinds.NUM_EXAMPLES: 5, kinds.EVAL_LOSS: float(part.sums[0]) / 5, kinds.EVAL_ACCURACY: 4 / 5}
    content = reply(test)
    content[kinds.TEST_SUMS] = pack_sums({"test": part}, np.array([3.0, 2.0, 1.0])[:width])
    return content


def reads(kind: type[Any], **given: Any) -> Callable[[RecordDict], object]:
    return lambda sent: codec.read(kind, sent, **given)


LAID: dict[str, Any] = {"layout": LAYOUT, "model": 0}
# Kind, its valid reply, its reader.
READERS: list[tuple[str, Callable[[], RecordDict], Callable[[RecordDict], object]]] = [
    (kinds.LOSSES, lambda: reply(LOSSES), reads(Losses, K=2)),
    (kinds.TRAIN, lambda: reply(NUMBERS, MODEL), lambda content: read_update(content, LAYOUT, 0)),
    (kinds.TRAIN_SELECT, lambda: reply(NUMBERS | CHOICE, MODEL), reads(SelectedUpdate, layout=LAYOUT, K=2)),
    ("own", lambda: reply(NUMBERS | OWN, MODEL, more=MODEL), lambda it: read_update(it, LAYOUT, 0, ["more"], ["a"])),
    ("answer", lambda: reply(COUNT | OWN, PROBED), lambda sent: read_answer(sent, {"profile": (5,)}, ["a"])),
    ("traced", lambda: reply(NUMBERS | {kinds.STEP_LOSSES: [1.0, 0.5]}, MODEL), reads(TracedUpdate, S=2, **LAID)),
    (kinds.EVALUATE, lambda: reply(TEST), read_evaluation),
    ("tuned", lambda: reply(TESTS), lambda sent: read_evaluation(sent, tuned=True, validation=True)),
    ("sums", lambda: with_sums(CLASS_PART, 2), lambda sent: read_evaluation(sent, sums_of=2)),
    ("value sums", lambda: with_sums(VALUE_PART, 3), lambda sent: read_evaluation(sent, sums_of=0)),
    (kinds.HELLO, lambda: reply(HELLO, None, TEXTS), reads(Introduction)),
    ("probe", lambda: reply(NUMBERS, MODEL, profile=PROBED), reads(ProbeUpdate, d=5, **LAID)),
    ("subspace", lambda: reply(COUNT, {"terms": BLOCK}), reads(Term, A=2, R=3, k=4)),
    ("factors", lambda: reply(COUNT, {"moments": BLOCK}), reads(LocalFactors, A=2, p=3, R=4)),
    ("mixture", lambda: reply(NUMBERS | MIXED, TWO_MODELS), reads(ClassMixtureUpdate, layout=LAYOUT, K=2, C=2)),
    ("folds", lambda: reply(NUMBERS, MODEL, folds=ROWS), reads(FoldUpdate, form=FULL, folds=2, **LAID)),
    ("rows", lambda: reply(COUNT, folds=SKETCH), reads(FoldRows, form=RowForm(2, 40), folds=2)),
    ("kmeans", lambda: reply(SIZES, POINTS), reads(LocalCentres, D=3, n=range(1, 5))),
    ("vectors", lambda: reply(PLACES, {"principal": AXES}), reads(PrincipalVectors, D=3, m=range(1, 4), most=3)),
    ("descriptor", lambda: reply(COUNT, {"descriptor": SQUARE}), lambda sent: read_descriptor(sent, 0, 2)),
    ("terms", lambda: reply(COUNT | {"value": 1.5}, **{kinds.SECOND_ORDER: SECOND}), reads(OwnTerms, P=2)),
    (kinds.DESCRIBE, lambda: pack_description("07", DESCRIPTION), read_description),
    ("closest", lambda: reply(COUNT | {"closest": [4, 6]}), reads(ClosestCounts, K=2)),
    ("bilevel", lambda: reply(NUMBERS, MODEL, **{kinds.GLOBAL: MODEL}), reads(BilevelUpdate, **LAID)),
    ("mixed", lambda: reply(NUMBERS, MODEL, **{kinds.MIX: HALVES}), reads(MixedUpdate, mix_layout=MIX, **LAID)),
    ("split", lambda: reply(SPLIT, MODEL, **FEATURES), reads(SplitUpdate, C=3, D=3, **LAID)),
]  # fmt: skip
