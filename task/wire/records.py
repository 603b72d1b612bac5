"""Flower's records, filled and read, and models as flat vectors (`Layout`)."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.task.wire import kinds

Record = ArrayRecord | ConfigRecord | MetricRecord
_NUMBER_BYTES = 8


def payload_bytes(content: RecordDict) -> int:
    """Return the bytes of a message's arrays, numbers and texts, without keys, framing, costs and handlers' names."""
    total = 0
    for name, record in content.items():
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) for array in record.values())
        elif name != kinds.WORK:
            total += sum(_value_bytes(value) for key, value in record.items() if key != kinds.HANDLER)
    return total


def payload_of(*values: object) -> tuple[int, int]:
    """Return how many numbers, texts and packed sums entries of a message hold, and their bytes."""
    count = size = 0
    for value in values:
        if isinstance(value, Array):
            count, size = count + math.prod(value.shape), size + len(value.data)
        else:
            count, size = count + (len(value) if isinstance(value, list) else 1), size + _value_bytes(value)
    return count, size


def _value_bytes(value: object) -> int:
    if type(value) is float or type(value) is int:
        return _NUMBER_BYTES
    if isinstance(value, list):
        # A record's lists hold values of one type.
        texts = bool(value) and isinstance(value[0], str | bytes)
        return sum(map(_value_bytes, value)) if texts else _NUMBER_BYTES * len(value)
    return len(value) if isinstance(value, str | bytes) else _NUMBER_BYTES


Vector = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

Order = Literal["C", "F"]
_ORDERS: tuple[Order, ...] = ("C", "F")
_IN_CACHE = 2**15
_TOGETHER = 64
"""Values in float64 that stay in a processor's cache from one step of arithmetic to the next."""


def array(dtype: str, shape: tuple[int, ...], data: bytes, stype: str = "numpy.ndarray") -> Array:
    """Return ``Array(dtype, shape, stype, data)``, without its search for how it was called."""
    made = Array.__new__(Array)
    vars(made).update(dtype=dtype, shape=shape, stype=stype, data=data)
    return made


class MalformedMessage(ValueError):
    """A message's content breaks the rules of its kind; its text says which rule, with the value."""


class NotFinite(MalformedMessage):
    """A number or an array is not finite, as those of a model that diverged."""


@dataclass(frozen=True)
class Entry:
    """One named array of a model and its place in the flat vector."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: int
    is_trained: bool = True

    @cached_property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @cached_property
    def values_type(self) -> np.dtype[Any]:
        """The dtype, as NumPy has it."""
        return np.dtype(self.dtype)

    @cached_property
    def num_bytes(self) -> int:
        """Size of the values, in bytes."""
        return self.size * self.values_type.itemsize

    @property
    def place(self) -> slice:
        """Where the values stand in the flat vector."""
        return slice(self.start, self.start + self.size)

    @property
    def is_integer(self) -> bool:
        """Whether this is a counter (such as BatchNorm's number of batches), which is never averaged."""
        return self.values_type.kind in "iub"


@dataclass(frozen=True, eq=False)
class PackedVector:
    """A flat vector (R,) whose values were checked and are kept as they were sent: half the memory of float64."""

    parts: tuple[npt.NDArray[np.generic], ...]
    size: int

    @property
    def largest(self) -> float:
        """Largest absolute value, 0 without any."""
        # As Python's floats: no integer type has the negative of its lowest number.
        return max((max(float(part.max()), -float(part.min())) for part in self.parts if part.size), default=0.0)

    def unpacked(self, out: Vector | None = None) -> Vector:
        """Return the values as float64, in `out` where it is given; new at every call without it."""
        vector, start = np.empty(self.size) if out is None else out, 0
        for part in self.parts:
            vector[start : start + part.size] = part.ravel()
            start += part.size
        return vector

    def minus(self, start: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the difference to another vector (R,), in `out`."""
        begin = 0
        for part in self.parts:
            place = slice(begin, begin + part.size)
            np.subtract(part.ravel(), start[place], out=out[place], casting="same_kind")
            begin += part.size
        return out


def columns(vectors: Sequence[PackedVector], count: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the entries of n vectors of one layout, at most `count` at a time, as the rows of (count, n)."""
    for parts in zip(*(vector.parts for vector in vectors), strict=True):
        flat = [part.ravel() for part in parts]
        found = np.empty((min(count, flat[0].size), len(flat)), flat[0].dtype)
        for begin in range(0, flat[0].size, count):
            some = found[: flat[0].size - begin]
            # A few vectors at a time: a whole block would be turned outside the cache.
            for first in range(0, len(flat), _TOGETHER):
                few = flat[first : first + _TOGETHER]
                some[:, first : first + _TOGETHER] = np.array([values[begin : begin + count] for values in few]).T
            yield some


def add_scaled(vectors: Sequence[PackedVector], factors: Sequence[float], total: Vector) -> None:
    """Add ``factor * vector.unpacked()`` of each vector of one layout to `total` in place, piece by piece."""
    start, scaled = 0, np.empty(min(_IN_CACHE, total.size))
    for parts in zip(*(vector.parts for vector in vectors), strict=True):
        flat = [part.ravel() for part in parts]
        for begin in range(0, flat[0].size, _IN_CACHE):
            some = scaled[: flat[0].size - begin]
            piece = total[start + begin : start + begin + some.size]
            for values, factor in zip(flat, factors, strict=True):
                # Entry by entry in float64, as it would be of the unpacked vector.
                np.copyto(some, values[begin : begin + some.size])
                some *= factor
                piece += some
        start += flat[0].size


@dataclass(frozen=True)
class Layout:
    """Order, names, shapes and dtypes of one model's arrays, whose flat vector holds every entry as float64."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, Array], untrained: Collection[str] = ()) -> "Layout":
        """Read the layout of a trusted model, in its own order; ValueError for one without arrays of numbers."""
        if unknown := sorted(set(untrained) - set(arrays)):
            raise ValueError(f"untrained entries {unknown} are not in the model; its entries are {', '.join(arrays)}")
        entries: list[Entry] = []
        start = 0
        for name, array in arrays.items():
            if np.dtype(array.dtype).kind not in "fiub":
                raise ValueError(f"model entry {name!r} has dtype {array.dtype}; only real numbers can be averaged")
            entries.append(Entry(name, tuple(array.shape), array.dtype, start, name not in untrained))
            start += entries[-1].size
        if not entries:
            raise ValueError("the initial model holds no arrays; pass ArrayRecord(model.state_dict())")
        return cls(tuple(entries))

    @property
    def size(self) -> int:
        """Length R of the flat vector."""
        last = self.entries[-1]
        return last.start + last.size

    @cached_property
    def integers(self) -> Mask:
        """Mask (R,) of the entries that are counters."""
        mask = np.zeros(self.size, dtype=bool)
        for entry in self.entries:
            mask[entry.place] = entry.is_integer
        return mask

    @cached_property
    def untrained(self) -> Mask:
        """Mask (R,) of the entries that are marked as moved by no gradient."""
        mask = np.zeros(self.size, dtype=bool)
        for entry in self.entries:
            mask[entry.place] = not entry.is_trained
        return mask

    @property
    def trained(self) -> Mask:
        """Mask (R,) of the trainable parameters: what tells clients apart in a profile or an estimate."""
        trained: Mask = ~(self.integers | self.untrained)
        return trained

    @cached_property
    def layers(self) -> npt.NDArray[np.int64]:
        """Number of the named array that each entry of the flat vector belongs to, (R,)."""
        return np.repeat(np.arange(len(self.entries), dtype=np.int64), [entry.size for entry in self.entries])

    def mask(self, prefixes: Iterable[str]) -> Mask:
        """Return the mask (R,) of entries whose name starts with one of `prefixes`; ValueError if one fits none."""
        mask = np.zeros(self.size, dtype=bool)
        for prefix in prefixes:
            found = [entry for entry in self.entries if entry.name == prefix or entry.name.startswith(f"{prefix}.")]
            if not found:
                names = ", ".join(entry.name for entry in self.entries)
                raise ValueError(
                    f"no layer of the model is called {prefix!r}; its entries are {names}, and what it freezes has "
                    "none"
                )
            for entry in found:
                mask[entry.place] = True
        return mask

    def flatten(self, arrays: Mapping[str, Array]) -> Vector:
        """Return the flat vector (R,) of a model that may come from anywhere; see `checked`."""
        return self.checked(arrays).unpacked()

    def checked(self, arrays: Mapping[str, Array]) -> PackedVector:
        """Return the flat vector (R,) of a model from anywhere: all is checked before it is unpacked."""
        if len(arrays) != len(self.entries):
            raise MalformedMessage(f"{len(arrays)} arrays came, the model has {len(self.entries)}")
        parts = []
        for entry in self.entries:
            if entry.name not in arrays:
                raise MalformedMessage(f"array {entry.name!r} is missing")
            parts.append(read_array(arrays[entry.name], entry))
        _refuse_not_finite(parts)
        return PackedVector(tuple(parts), self.size)

    def arrays(self, vector: Vector) -> dict[str, Array]:
        """Return the named arrays of one flat vector (R,), each in its own dtype."""
        return {
            entry.name: write_array(vector[entry.place].astype(entry.dtype).reshape(entry.shape))
            for entry in self.entries
        }


def read_array(array: Array, entry: Entry) -> npt.NDArray[np.generic]:
    """Return the values of a serialised array that claims to be `entry`, without trusting any of its claims.

    Flower's own `Array.numpy()` allocates what the payload's header asks for; here the header must be the one that
    NumPy writes for the expected entry, and the payload as long as both say, before a value is read.
    """
    if (array.dtype, tuple(array.shape), array.stype) != (entry.dtype, entry.shape, "numpy.ndarray"):
        raise MalformedMessage(
            f"array {entry.name!r} is {array.dtype}{list(array.shape)} ({array.stype}), "
            f"not {entry.dtype}{list(entry.shape)} (numpy.ndarray)"
        )
    data = array.data
    if len(data) < entry.num_bytes:
        raise MalformedMessage(f"array {entry.name!r} holds {len(data)} bytes, too few for its shape")
    for order in _ORDERS:
        header = _header(entry.dtype, entry.shape, order)
        if len(data) == len(header) + entry.num_bytes and data.startswith(header):
            return np.ndarray(entry.shape, entry.values_type, data, len(header), order=order)
    raise MalformedMessage(f"array {entry.name!r} has another NPY header than its shape and dtype, or other values")


def _refuse_not_finite(parts: Sequence[npt.NDArray[Any]]) -> None:
    """Raise NotFinite where a value is NaN or infinite."""
    # By a sum of squares, which takes less time than to look at each value: NaN and infinity stay in it. Where it is
    # too large, each value is looked at.
    squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for flat in (part.ravel() for part in parts if part.dtype.kind == "f"):
            squares += float(flat.dot(flat))
    if not math.isfinite(squares) and not all(np.isfinite(part).all() for part in parts):
        raise NotFinite("the arrays hold NaN or infinite values")


def write_array(values: npt.NDArray[Any]) -> Array:
    """Serialise an array: the bytes are those of Flower's own ``Array(values)``, in a quarter of the time."""
    dtype = _name(values.dtype)
    # One copy of a large array, where `tobytes` and the sum of two texts are three.
    data = values.data if values.flags.c_contiguous and values.size else values.tobytes()
    return array(dtype, values.shape, b"".join((_header(dtype, values.shape), data)))


@lru_cache(maxsize=64)
def _name(dtype: np.dtype[Any]) -> str:
    # NumPy puts it together anew each time, which takes longer than writing a small array.
    return str(dtype)


def view_array(array: Array) -> npt.NDArray[Any]:
    """Return a trusted array's values without copying them where that is possible; they cannot be written to then."""
    header = _header(array.dtype, tuple(array.shape))
    if array.stype == "numpy.ndarray" and array.data.startswith(header):
        return np.frombuffer(array.data, dtype=array.dtype, offset=len(header)).reshape(array.shape)
    return array.numpy()


@lru_cache(maxsize=1024)
def _header(dtype: str, shape: tuple[int, ...], order: Order = "C") -> bytes:
    """Return the NPY header that NumPy writes for an array whose values stand row by row, or column by column (F)."""
    stream = BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": order == "F",
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()
