"""Thousands of malformed messages: a reader returns checked values or raises MalformedMessage, and nothing else.

Each message starts as a valid reply and is changed in one to three places: records, keys, types, values, shapes,
array headers, payloads, or the bytes of the whole reply as Flower sends it. A new reader is one more line in
tests/replies.py.
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

from florets.task.wire import MalformedMessage, kinds, payload_bytes
from tests.flower_tools import RecordDictProto, recorddict_from_proto, recorddict_to_proto
from tests.replies import MODEL, READERS

MOST_MEMORY = 1 << 30
"""Bytes beyond those in use; a reader that believes a claim of 1e11 values asks for far more."""

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


@pytest.mark.parametrize("messages", [1_000, pytest.param(12_000, marks=pytest.mark.slow)])
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
