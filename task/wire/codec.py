"""One codec for clients' replies: a message is a dataclass, and the annotations of its fields are their checks.

```python
@dataclass(frozen=True)
class LocalCentres:
    sizes: Annotated[IntArray, Numbers("n", integer=True, least=1)]
    centres: Annotated[FloatArray, Tensor("n", "D")]

pack(LocalCentres, sizes=..., centres=...)                      # the client
read(LocalCentres, content, n=range(1, most + 1), D=width)      # the server: checked values, or MalformedMessage
```

A field is sent under its name, with hyphens for underscores, unless its annotation names another. A field with a
default may be missing. Fields without such an annotation are not sent: the reader is given them. Dimensions have
names; each is a number or a range that the reader is given, or else whatever comes first under that name. A method
`check` holds what several fields must fulfil together. Nothing in a reply is trusted.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.flower import filled
from florets.task.wire.records import Entry, Layout, MalformedMessage, NotFinite, Record, read_array, write_array

M = TypeVar("M")
Sizes = dict[str, Any]
"""Dimensions by name, and whatever else a field's check needs, such as a `Layout`."""

LARGEST = float(np.finfo(np.float64).max)
MAX_EXAMPLES = 10**9
"""Guards sums of counts against overflow; the other clients' counts say what is plausible (`check_examples`)."""
LOSS_RULE = f"a loss is NaN, negative or larger than {kinds.DIVERGED:g}"
_TYPES: dict[str, type[Record]] = {kinds.METRICS: MetricRecord, kinds.CONFIG: ConfigRecord}
"""Types of records by name; all others are of arrays."""


class Item:
    """What a field is on the wire: an entry of a record, with its check."""

    record: str = kinds.METRICS
    name: str = ""
    is_record = False
    """Whether it is all of its record."""

    def checked(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the checked value of an entry; raise MalformedMessage where it breaks the rules."""
        raise NotImplementedError

    def packed(self, value: Any) -> Any:
        """Return a value as it is sent."""
        return value


@dataclass(frozen=True)
class Number(Item):
    """A number within a range."""

    name: str = ""
    least: float = -LARGEST
    most: float = LARGEST
    integer: bool = False
    record: str = kinds.METRICS

    def checked(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the number."""
        if self.integer:
            if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
                raise MalformedMessage(f"{name} is {value!r:.60}, not an integer from {self.least} to {self.most}")
            return value
        # Of an integer beyond every float `isfinite` itself would raise OverflowError.
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
            raise NotFinite(f"{name} is not a finite number")
        if not self.least <= value <= self.most:
            raise MalformedMessage(f"{name} is {value!r:.60}, not from {self.least:g} to {self.most:g}")
        return float(value)


@dataclass(frozen=True)
class Flag(Item):
    """True or false, as 1 or 0."""

    name: str = ""

    def checked(self, name: str, value: Any, sizes: Sizes) -> bool:
        """Return the flag."""
        if value not in (0, 1):
            raise MalformedMessage(f"{name} is {value!r:.60}, not 0 or 1")
        return bool(value)

    def packed(self, value: Any) -> int:
        """Return it as it is sent."""
        return int(value)


@dataclass(frozen=True)
class Text(Item):
    """Text; `problem` returns why it is refused, or None."""

    name: str = ""
    problem: Callable[[str], str | None] = lambda _: None
    record: str = kinds.CONFIG

    def checked(self, name: str, value: Any, sizes: Sizes) -> str:
        """Return the text."""
        if not isinstance(value, str):
            raise MalformedMessage(f"{name} is a {type(value).__name__} and must be text")
        if problem := self.problem(value):
            raise MalformedMessage(f"{name}={value[:60]!r} {problem}")
        return value


@dataclass(frozen=True)
class Blobs(Item):
    """A list of byte strings, of at most `most` bytes each; `length` is their number, or the name of it."""

    length: str | int
    most: int
    name: str = ""
    record: str = kinds.CONFIG

    def checked(self, name: str, value: Any, sizes: Sizes) -> list[bytes]:
        """Return the strings."""
        if not isinstance(value, list) or not all(type(one) is bytes and len(one) <= self.most for one in value):
            raise MalformedMessage(f"{name} are no byte strings of at most {self.most} bytes")
        if (wanted := _misfit(self.length, len(value), sizes)) is not None:
            raise MalformedMessage(f"{len(value)} {name} came, not {wanted}")
        return value


class Numbers(Item):
    """A list of numbers within a range; in two or more dimensions, which must be known, row after row."""

    def __init__(
        self,
        *shape: str,
        name: str = "",
        least: float | None = None,
        most: float | None = None,
        integer: bool = False,
    ) -> None:
        self.shape, self.name, self.integer = shape, name, integer
        largest = MAX_EXAMPLES if integer else LARGEST
        self.least, self.most = -largest if least is None else least, largest if most is None else most

    def checked(self, name: str, value: Any, sizes: Sizes) -> npt.NDArray[Any]:
        """Return the numbers, int64 or float64."""
        if not isinstance(value, list):
            raise MalformedMessage(f"no list of {name} came")
        if len(self.shape) == 1:
            shape, wanted = (len(value),), _misfit(self.shape[0], len(value), sizes)
        else:
            shape = tuple(sizes[dim] for dim in self.shape)
            wanted = _misfit(math.prod(shape), len(value), sizes)
        if wanted is not None:
            raise MalformedMessage(f"{len(value)} {name} came, not {wanted}")
        # Compared before NumPy sees them: an integer beyond every float makes it raise OverflowError.
        if (self.integer and not all(isinstance(one, int) for one in value)) or not all(
            self.least <= one <= self.most for one in value
        ):
            raise MalformedMessage(self._rule(name))
        return np.array(value, dtype=np.int64 if self.integer else np.float64).reshape(shape)

    def _rule(self, name: str) -> str:
        if self.integer:
            return f"{name} are no integers from {self.least:.0f} to {self.most:.0f}"
        return f"{name} are no numbers from {self.least:g} to {self.most:g}"

    def packed(self, value: Any) -> list[Any]:
        """Return them as they are sent."""
        found: list[Any] = np.ravel(value).tolist()
        return found


@dataclass(frozen=True)
class Loss(Number):
    """A loss: clients send the sentinel `kinds.DIVERGED` for a model that diverged, which is read as infinite."""

    def checked(self, name: str, value: Any, sizes: Sizes) -> float:
        """Return the loss."""
        loss = float(super().checked(name, value, sizes))
        # Benign clients report a model that diverged as DIVERGED: more than that is no loss but a fault.
        if not 0 <= loss <= kinds.DIVERGED:
            raise MalformedMessage(LOSS_RULE)
        return math.inf if loss == kinds.DIVERGED else loss


class LossList(Numbers):
    """Losses, see `Loss`."""

    def __init__(self, *shape: str, name: str = "") -> None:
        super().__init__(*shape, name=name, least=0.0, most=kinds.DIVERGED)

    def checked(self, name: str, value: Any, sizes: Sizes) -> npt.NDArray[np.float64]:
        """Return the losses."""
        losses = super().checked(name, value, sizes)
        if kinds.DIVERGED in value:
            losses[losses == kinds.DIVERGED] = np.inf
        return losses

    def _rule(self, name: str) -> str:
        return LOSS_RULE


class Tensor(Item):
    """An array of one dtype in a record of arrays; all values are finite, and no larger than `most`."""

    def __init__(
        self,
        *shape: str | int,
        name: str = "",
        record: str = kinds.ARRAYS,
        dtype: str = "float32",
        most: float | None = None,
        double: bool = False,
    ) -> None:
        self.shape, self.name, self.record = shape, name, record
        self.dtype, self.most, self.double = dtype, most, double

    def checked(self, name: str, value: Any, sizes: Sizes) -> npt.NDArray[Any]:
        """Return the values; those that came cannot be written to."""
        sent = tuple(value.shape)
        if len(sent) != len(self.shape):
            raise MalformedMessage(f"array {name!r} has {len(sent)} dimensions, not {len(self.shape)}")
        for dim, size in zip(self.shape, sent, strict=True):
            if (wanted := _misfit(dim, size, sizes)) is not None:
                raise MalformedMessage(f"array {name!r} is {value.dtype}{list(sent)}, {size} for {dim}, not {wanted}")
        values = read_array(value, Entry(name, sent, self.dtype, 0))
        if self.dtype.startswith("float") and np.count_nonzero(np.isfinite(values)) != values.size:
            raise NotFinite(f"array {name!r} holds NaN or infinite values")
        if self.most is not None and np.abs(values).max(initial=0) > self.most:
            raise MalformedMessage(f"array {name!r} holds a value beyond {self.most:g}")
        return values.astype(np.float64) if self.double else values

    def packed(self, value: Any) -> Array:
        """Return it as it is sent."""
        return value if isinstance(value, Array) else write_array(np.asarray(value, dtype=self.dtype))


@dataclass(frozen=True)
class Model(Item):
    """A model, all of a record; `layout` names the `Layout` among what the reader is given."""

    record: str = kinds.ARRAYS
    layout: str = "layout"
    is_record = True

    def checked(self, name: str, value: Any, sizes: Sizes) -> Any:
        """Return the flat vector (R,) as it came, a `PackedVector`."""
        layout: Layout = sizes[self.layout]
        return layout.checked(value)

    def packed(self, value: Any) -> ArrayRecord:
        """Return it as it is sent; values are copied."""
        if isinstance(value, ArrayRecord):
            return value
        return filled(
            ArrayRecord(), {name: one if isinstance(one, Array) else write_array(one) for name, one in value.items()}
        )


class Vector(Model):
    """A model, all of a record, as a flat float64 vector (R,)."""

    def checked(self, name: str, value: Any, sizes: Sizes) -> npt.NDArray[np.float64]:
        """Return the flat vector."""
        found: npt.NDArray[np.float64] = super().checked(name, value, sizes).unpacked()
        return found


class Models(Model):
    """K models of one layout, all of a record, as entries `<k>/<name>`; K is a size that the reader is given."""

    def checked(self, name: str, value: Any, sizes: Sizes) -> npt.NDArray[np.float64]:
        """Return the models (K, R)."""
        layout: Layout = sizes[self.layout]
        models = [{entry.name: f"{model}/{entry.name}" for entry in layout.entries} for model in range(sizes["K"])]
        if value.keys() != {sent for model in models for sent in model.values()}:
            raise MalformedMessage(f"record {name!r} does not hold the {len(models)} models that were sent")
        return np.stack([layout.flatten({own: value[sent] for own, sent in model.items()}) for model in models])

    def packed(self, value: Any) -> ArrayRecord:
        """Return a list of models, by names, as they are sent."""
        return super().packed(
            {f"{model}/{name}": one for model, arrays in enumerate(value) for name, one in arrays.items()}
        )


def _misfit(dim: str | int, size: int, sizes: Sizes) -> str | None:
    """Return what a dimension must be where it is not; one that nobody knows is from now on as large as it came."""
    wanted = dim if isinstance(dim, int) else sizes.setdefault(dim, size)
    if isinstance(wanted, range):
        sizes[str(dim)] = size
        return None if size in wanted else f"{wanted.start} to {wanted.stop - 1}"
    return None if wanted == size >= 0 else str(wanted)


class Form:
    """What a message holds: items by field, of which the `optional` may be missing."""

    def __init__(
        self,
        items: Mapping[Hashable, Item],
        optional: frozenset[Hashable] = frozenset(),
        given: tuple[str, ...] = (),
        others: frozenset[str] = frozenset(),
    ) -> None:
        self.items, self.optional, self.given = dict(items), optional, given
        self._records: dict[str, dict[str, tuple[Hashable, Item]]] = {}
        """By record its entries' fields and items, by name."""
        for field, item in items.items():
            self._records.setdefault(item.record, {})[item.name or str(field).replace("_", "-")] = field, item
        self._required = {
            record: frozenset(name for name, (field, _) in entries.items() if field not in optional)
            for record, entries in self._records.items()
        }
        first = {record: next(iter(entries.values())) for record, entries in self._records.items()}
        self._whole = {record: (field, item) for record, (field, item) in first.items() if item.is_record}
        """By record the field and item that are all of it."""
        self._wanted = frozenset(record for record, names in self._required.items() if names)
        self._taken = self._records.keys() | others | {kinds.WORK}

    def read(self, content: RecordDict, sizes: Sizes) -> dict[Any, Any]:
        """Return the checked values of a reply by field; raise MalformedMessage where it is not of this form."""
        if content.keys() != self._wanted and not self._wanted <= content.keys() <= self._taken:
            raise MalformedMessage(f"the reply holds the records {sorted(content)}, not {sorted(self._wanted)}")
        values: dict[Any, Any] = {}
        for record, entries in self._records.items():
            found: Any = content.get(record)
            if found is None:
                continue
            kind, required = _TYPES.get(record, ArrayRecord), self._required[record]
            if type(found) is not kind:
                raise MalformedMessage(f"record {record!r} is a {type(found).__name__}, and must be {kind.__name__}")
            if (whole := self._whole.get(record)) is not None:
                field, item = whole
                values[field] = item.checked(record, found, sizes)
                continue
            found = dict(found.items())
            if found.keys() != required and not required <= found.keys() <= entries.keys():
                raise MalformedMessage(f"the reply holds the {record} {sorted(found)}, not {sorted(required)}")
            for name, (field, item) in entries.items():
                if name in found:
                    values[field] = item.checked(name, found[name], sizes)
        return values

    def pack(self, values: Mapping[Any, Any]) -> RecordDict:
        """Return the reply that holds these values by field; of an optional one None is left out."""
        if wrong := (self.items.keys() ^ values.keys()) - self.optional:
            raise TypeError(f"a message with the fields {', '.join(map(str, self.items))}: wrong are {wrong}")
        records: dict[str, Record] = {}
        for record, entries in self._records.items():
            if (whole := self._whole.get(record)) is not None:
                field, item = whole
                if (value := values.get(field)) is not None:
                    records[record] = item.packed(value)
                continue
            sent = {
                name: item.packed(value)
                for name, (field, item) in entries.items()
                if (value := values.get(field)) is not None
            }
            if sent:
                made: Any = _TYPES.get(record, ArrayRecord)()
                records[record] = filled(made, sent)
        return filled(RecordDict(), records)


_FORMS: dict[type[Any], Form] = {}


def form_of(kind: type[Any]) -> Form:
    """Return the form of a message's class."""
    if (known := _FORMS.get(kind)) is not None:
        return known
    hints = get_type_hints(kind, include_extras=True)
    items: dict[Hashable, Item] = {}
    optional, given = set(), []
    for field in fields(kind):
        item = next((one for one in getattr(hints[field.name], "__metadata__", ()) if isinstance(one, Item)), None)
        if item is None:
            given.append(field.name)
        else:
            items[field.name] = item
            if field.default is not MISSING or field.default_factory is not MISSING:
                optional.add(field.name)
    form = _FORMS[kind] = Form(items, frozenset(optional), tuple(given))
    return form


def read(kind: type[M], content: RecordDict, **given: Any) -> M:
    """Return the message of a dataclass whose fields are annotated with items."""
    form = form_of(kind)
    values = form.read(content, given)
    for name in form.given:
        if name in given:
            values[name] = given[name]
    message = kind(**values)
    if (check := getattr(kind, "check", None)) is not None:
        check(message)
    return message


def pack(kind: type[Any], **values: Any) -> RecordDict:
    """Return the reply of a message's class with these values of its fields."""
    return form_of(kind).pack(values)
