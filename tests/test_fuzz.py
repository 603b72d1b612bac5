"""Thousands of malformed messages: a reader returns checked values or raises MalformedMessage, and nothing else.

Each message starts as a valid reply and is changed in one to three places: records, keys, types, values, shapes,
array headers, payloads, or the bytes of the whole reply as Flower sends it. A new reader is one more line in READERS.
"""

import io
import pickle
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto

from florets.task.data.tables.description import Description
from florets.task.training.figures import sums_of
from florets.task.wire import Layout, MalformedMessage, kinds, payload_bytes
from florets.task.wire.description import pack_description, read_description
from florets.task.wire.folds import RowForm, read_fold_rows, read_fold_update
from florets.task.wire.intercept import read_intercept
from florets.task.wire.introduction import read_introduction
from florets.task.wire.kmeans import read_centres
from florets.task.wire.labels import read_label_counts
from florets.task.wire.moments import read_anchor_update, read_factors, read_term
from florets.task.wire.probe import read_probe_update
from florets.task.wire.replies import (
    read_evaluation,
    read_losses,
    read_selected_update,
    read_update,
)
from florets.task.wire.soft import read_soft_update
from florets.task.wire.sums import PartSums, pack_sums

MOST_MEMORY = 1 << 30
"""Bytes beyond those in use; a reader that believes a claim of 1e11 values asks for far more."""

MODEL = {
    "weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "count": Array(np.array(7, dtype=np.int64)),
    "empty": Array(np.zeros((0, 3), dtype=np.float32)),
}
LAYOUT = Layout.of(MODEL)
SENT = np.zeros((2, LAYOUT.size))
NUMBERS: dict[str, Any] = {kinds.NUM_EXAMPLES: 10, kinds.TRAIN_LOSS: 0.5}
CHOICE: dict[str, Any] = {kinds.CHOSEN_MODEL: 1, kinds.MODEL_LOSSES: [2.0, 1.0]}
LOSSES: dict[str, Any] = {kinds.NUM_EXAMPLES: 10, kinds.MODEL_LOSSES: [2.0, 1.0], kinds.KEPT: 0}
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
HELLO: dict[str, Any] = {kinds.NUM_EXAMPLES: 5, kinds.CLUSTER: 1, kinds.NUM_PARTITIONS: 3}
TEXTS: dict[str, Any] = {
    kinds.CLIENT_KEY: "07",
    kinds.DEVICE: "cpu",
    kinds.FINGERPRINT: "f",
}
DESCRIPTION = Description("archive", 9, 7, shape=(3,), classes=("a", "b"))
BLOCK = Array(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
COUNT = {kinds.NUM_EXAMPLES: 10}
PROBED = {kinds.PROFILE: Array(np.arange(5, dtype=np.float32))}
ANCHOR = NUMBERS | {kinds.RESIDUAL: 0.25}
TWO_MODELS = {f"{number}/{name}": array for number in range(2) for name, array in MODEL.items()}
SHARES = NUMBERS | {kinds.MEMBERSHIPS: [0.25, 0.75], kinds.MODEL_LOSSES: [2.0, 1.0]}
SIZES: dict[str, Any] = {kinds.SIZES: [4, 6]}
POINTS = {kinds.CENTRES: MODEL["weight"]}
ROWS, FULL = {kinds.FOLDS: MODEL["weight"]}, RowForm("full", 3, 3)
SIGNS = {kinds.FOLDS: Array(np.array([[170, 128], [1, 0]], dtype=np.uint8))}
OFFSETS: dict[str, Any] = COUNT | {kinds.OFFSETS: [0.5, -0.5], kinds.VARIANCES: [0.1, 0.2]}
FACTORS = {kinds.LEFT: BLOCK, kinds.RIGHT: BLOCK}


def reply(
    numbers: dict[str, Any],
    arrays: dict[str, Array] | None = None,
    texts: dict[str, Any] | None = None,
    profile: dict[str, Array] | None = None,
    folds: dict[str, Array] | None = None,
) -> RecordDict:
    content = RecordDict({kinds.METRICS: MetricRecord(dict(numbers))})
    if arrays is not None:
        content[kinds.ARRAYS] = ArrayRecord(dict(arrays))
    if texts is not None:
        content[kinds.CONFIG] = ConfigRecord(dict(texts))
    if profile is not None:
        content[kinds.PROFILE] = ArrayRecord(dict(profile))
    if folds is not None:
        content[kinds.FOLDS] = ArrayRecord(dict(folds))
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


# Kind, its valid reply, its reader.
READERS: list[tuple[str, Callable[[], RecordDict], Callable[[RecordDict], object]]] = [
    (kinds.LOSSES, lambda: reply(LOSSES), lambda content: read_losses(content, 2)),
    (kinds.TRAIN, lambda: reply(NUMBERS, MODEL), lambda content: read_update(content, LAYOUT, 0)),
    (kinds.TRAIN_SELECT, lambda: reply(NUMBERS | CHOICE, MODEL), lambda sent: read_selected_update(sent, LAYOUT, 2)),
    (kinds.EVALUATE, lambda: reply(TEST), read_evaluation),
    ("tuned", lambda: reply(TESTS), lambda sent: read_evaluation(sent, tuned=True, validation=True)),
    ("sums", lambda: with_sums(CLASS_PART, 2), lambda sent: read_evaluation(sent, sums_of=2)),
    ("value sums", lambda: with_sums(VALUE_PART, 3), lambda sent: read_evaluation(sent, sums_of=0)),
    (kinds.HELLO, lambda: reply(HELLO, None, TEXTS), read_introduction),
    ("probe", lambda: reply(NUMBERS, MODEL, profile=PROBED), lambda sent: read_probe_update(sent, LAYOUT, 0, 5)),
    ("subspace", lambda: reply(COUNT, {kinds.TERMS: BLOCK}), lambda sent: read_term(sent, (2, 3, 4))),
    ("factors", lambda: reply(COUNT, FACTORS), lambda sent: read_factors(sent, (2, 3, 4), symmetric=False)),
    ("factor", lambda: reply(COUNT, {kinds.LEFT: BLOCK}), lambda sent: read_factors(sent, (2, 3, 4), symmetric=True)),
    ("descent", lambda: reply(ANCHOR, MODEL), lambda sent: read_anchor_update(sent, LAYOUT)),
    ("soft", lambda: reply(SHARES, TWO_MODELS), lambda sent: read_soft_update(sent, LAYOUT, SENT)),
    ("folds", lambda: reply(NUMBERS, MODEL, folds=ROWS), lambda sent: read_fold_update(sent, LAYOUT, 0, FULL, 2)),
    ("rows", lambda: reply(COUNT, folds=SIGNS), lambda sent: read_fold_rows(sent, RowForm("signs", 9, 40), 2)),
    ("kmeans", lambda: reply(SIZES, POINTS), lambda sent: read_centres(sent, 3, 4)),
    ("intercept", lambda: reply(OFFSETS), lambda sent: read_intercept(sent, 2)),
    (kinds.DESCRIBE, lambda: pack_description("07", DESCRIPTION), read_description),
    ("labels", lambda: reply({kinds.LABEL_COUNTS: [4, 0, 6]}), lambda sent: read_label_counts(sent, 3)),
]  # fmt: skip

ODD_NUMBERS: list[Any] = [
    0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 10**400, 0.0, -0.0, 1e-320, 1e300, float("nan"), float("inf"),
    -float("inf"), kinds.DIVERGED, [], [0], [1.0], [1.0] * 3, [float("nan")] * 2, [float("inf")] * 2, [-1.0, 0.0],
    [10**400, 1], [2**64 - 1] * 2, [1.0] * 10_000,
]  # fmt: skip
ODD_TEXTS: list[Any] = [
    "", "-", "x" * 201, "x" * 100_000, "\x1b[31m", "a\nb", "=HYPERLINK(1)", "../../x", "<script>", "\udcff", "\0",
    b"", b"\xff" * 50, True, 7, float("nan"), [], ["a"], [b"a"], [True],
]  # fmt: skip
ODD_DTYPES = ["float64", "int8", "object", "O", "", "float32\0", "<f4", "|S9999999", "V8", "bfloat16", "float32" * 99]
ODD_SHAPES: list[tuple[int, ...]] = [(), (0,), (6,), (3, 2), (10**9,), (2, 3, 1), (-1,), (2**62, 4), (1,) * 70]


def npy(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


class Explosive:
    """Unpickled, it fails the test run."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.exit, ("a reply was unpickled",)


PAYLOADS = [
    b"", b"\x93NUMPY", pickle.dumps(Explosive()), npy(np.array([Explosive()])), npy(np.zeros((2, 3), ">f4")),
    npy(np.zeros((2, 3), "f8")), npy(np.full((2, 3), np.nan, "f4")), npy(np.zeros(6, "f4")),
    b"PK\x03\x04" + b"\0" * 99,
]  # fmt: skip
HEADERS = [
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000,), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3), }",
    b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }",
    b"{'descr': '<f4', 'fortran_order': 1, 'shape': (2L, 3L), }",
    b"{'descr': '\\q', 'fortran_order': False, 'shape': (2, 3), }",
    b"(" * 5000,
    b"__import__('os').abort()",
    b"[" + b"9" * 5000 + b"]",
    b"\xff\xfe\0",
]


def with_header(header: bytes, size: int) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\n" + b"\0" * size


def mutate_array(array: Array, rng: np.random.Generator) -> Array:
    dtype, shape, stype, data = array.dtype, tuple(array.shape), array.stype, array.data
    what = rng.integers(8)
    if what == 0:
        dtype = ODD_DTYPES[rng.integers(len(ODD_DTYPES))]
    elif what == 1:
        shape = ODD_SHAPES[rng.integers(len(ODD_SHAPES))]
    elif what == 2:
        stype = ["", "numpy", "torch.tensor", "pickle"][rng.integers(4)]
    elif what == 3:
        data = PAYLOADS[rng.integers(len(PAYLOADS))]
    elif what == 4:
        data = with_header(HEADERS[rng.integers(len(HEADERS))], int(rng.integers(60)))
    elif what == 5:
        data = data[: rng.integers(len(data))]
    elif what == 6:
        data += rng.bytes(int(rng.integers(1, 200)))
    else:
        data = flip(data, rng)
    return Array(dtype, shape, stype, data)


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        changed[rng.integers(len(changed))] = rng.integers(256)
    return bytes(changed)


def pick(keys: Any, rng: np.random.Generator) -> str:
    return sorted(keys)[rng.integers(len(keys))]


def mutate_record(content: RecordDict, name: str, rng: np.random.Generator) -> None:
    """Change a key or a value of one record, as far as Flower's own types allow."""
    record = content[name]
    odd: list[Any] = ODD_TEXTS if isinstance(record, ConfigRecord) else ODD_NUMBERS
    what = rng.integers(4)
    if what == 0 and record:
        del record[pick(record, rng)]
    elif what == 1:
        new = pick(MODEL, rng) if isinstance(record, ArrayRecord) else str(ODD_TEXTS[rng.integers(6)])
        record[new] = MODEL["weight"] if isinstance(record, ArrayRecord) else odd[rng.integers(len(odd))]
    elif record:
        key = pick(record, rng)
        if isinstance(record, ArrayRecord):
            record[key] = mutate_array(record[key], rng)
        else:
            record[key] = odd[rng.integers(len(odd))]


def mutate(content: RecordDict, rng: np.random.Generator) -> RecordDict:
    """Return the reply with one change; Flower's refusal to build or to parse it comes out as an exception."""
    what = rng.integers(10)
    if what == 0 and content:
        del content[pick(content, rng)]
    elif what == 1:
        name = (kinds.METRICS, kinds.ARRAYS, kinds.CONFIG, "more")[rng.integers(4)]
        content[name] = (MetricRecord(), ConfigRecord(), ArrayRecord(), MetricRecord({"x": 1}))[rng.integers(4)]
    elif what == 2:
        wire = flip(recorddict_to_proto(content).SerializeToString() or b"\0", rng)
        return recorddict_from_proto(RecordDictProto.FromString(wire))
    elif content:
        mutate_record(content, pick(content, rng), rng)
    return content


@contextmanager
def little_memory() -> Iterator[None]:
    """Let an allocation that is far above the others' fail, as it would on a small machine."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        yield
        return
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def malformed(number: int) -> tuple[str, RecordDict, Callable[[RecordDict], object]] | None:
    """Return message `number`, or None where Flower itself refuses to build or parse it."""
    kind, valid, read = READERS[number % len(READERS)]
    rng = np.random.default_rng([7, number])
    content = valid()
    # Whatever Flower's own code raises is raised in its transport, before a reply is a reply.
    try:
        for _ in range(int(rng.integers(1, 4))):
            content = mutate(content, rng)
    except Exception:
        return None
    return kind, content, read


@pytest.mark.parametrize(("kind", "valid", "read"), READERS, ids=[kind for kind, _, _ in READERS])
def test_the_replies_that_the_fuzz_starts_from_are_good(
    kind: str, valid: Callable[[], RecordDict], read: Callable[[RecordDict], object]
) -> None:
    read(valid())
    read(recorddict_from_proto(recorddict_to_proto(valid())))


@pytest.mark.parametrize("messages", [2_000, pytest.param(12_000, marks=pytest.mark.slow)])
def test_nothing_but_malformed_message_comes_out_of_any_reader(messages: int) -> None:
    refused: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    reasons: set[str] = set()
    number = 0
    with little_memory():
        while tried.total() < messages:
            made = malformed(number)
            number += 1
            if made is None:
                continue
            kind, content, read = made
            tried[kind] += 1
            try:
                payload_bytes(content)
                read(content)
            except MalformedMessage as problem:
                refused[kind] += 1
                reasons.add(str(problem)[:5])
            except BaseException as error:  # the one thing that this test is about
                raise AssertionError(f"message {number - 1} to {kind}: {error!r} in {content!r:.500}") from error
    # Some changes are harmless (a flipped bit of a weight): but most must be seen.
    assert set(refused) == {kind for kind, _, _ in READERS}
    assert "" not in reasons
    assert refused.total() > 0.6 * messages, (refused, tried)
