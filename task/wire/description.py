"""Reply to `query.describe`: a site's description of its data, as JSON; nothing in it is trusted."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from flwr.app import ConfigRecord, RecordDict

from florets.task.data.tables.description import (
    INNER,
    MOST_CATEGORIES,
    MOST_CLASSES,
    ColumnSummary,
    Description,
    TargetSummary,
)
from florets.task.data.tables.names import LARGEST, MOST_COLUMNS, is_sendable
from florets.task.wire import kinds
from florets.task.wire.codec import MAX_EXAMPLES
from florets.task.wire.records import MalformedMessage

MOST_CHARACTERS = 8 * 2**20
"""Length of a description: some 20,000 columns."""
_MOST_VALUES = 10**8
"""Numbers of one input."""
_MOST_NOTES = 10


def pack_description(key: str, description: Description) -> RecordDict:
    """Return the reply of a client with this key; ValueError if it is too long, or a class's name cannot be sent."""
    if unfit := sum(not is_sendable(name) for name in description.classes):
        raise ValueError(f"{unfit} folders of classes have names that are too long or not printable: rename them.")
    text = description.to_json()
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the table has {len(description.columns)} columns: name those needed, task.table.columns.")
    return RecordDict({kinds.CONFIG: ConfigRecord({kinds.CLIENT_KEY: key, kinds.DESCRIPTION: text})})


def read_description(content: RecordDict) -> tuple[str, Description]:
    """Return what a client calls itself, and its description."""
    record = content.get(kinds.CONFIG)
    sent: Mapping[str, Any] = record if isinstance(record, ConfigRecord) else {}
    key, text = sent.get(kinds.CLIENT_KEY), sent.get(kinds.DESCRIPTION)
    if not isinstance(key, str) or not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise MalformedMessage("no description of data")
    try:
        if not is_sendable(key):
            raise ValueError
        values = json.loads(text, parse_constant=_refuse)
        found = Description.of(values)
        _check(found)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        # Its own words would be the client's.
        raise MalformedMessage("its description of its data is malformed") from None
    return key, found


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _check(found: Description) -> None:
    is_table, is_archive, means = found.form == "table", found.form == "archive", found.feature_means
    texts = (*found.classes, *found.notes, *found.lacking, *found.leaking, *([found.group] if found.group else ()))
    fits = (
        _is(found, Description)
        and max(found.records, found.untargeted, found.unseen, found.targets, found.duplicates) <= MAX_EXAMPLES
        and 1 <= found.train_records <= found.records
        # What belongs to each form.
        and (found.target is not None if is_table else not found.guessed)
        and (found.target is None or is_table or (is_archive and not found.classes))
        and (is_archive or not (found.are_pixels or found.is_real))
        and is_table != bool(found.shape)
        and len(found.shape) <= 8
        and min(found.shape, default=1) >= 1
        and math.prod(found.shape) <= _MOST_VALUES
        and (not found.is_real or (len(found.shape) == 1 and len(means) in (0, *found.shape)))
        and (found.is_real or not means)
        and all(_are_figures(*pair) for pair in zip(means, found.feature_m2, strict=True))
        # How much there is.
        and len(found.classes) <= 10_000
        and len(found.notes) <= _MOST_NOTES
        and max(map(len, (found.columns, found.lacking, found.leaking))) <= MOST_COLUMNS
        and set(found.trained) <= set(found.classes)
        and all(map(is_sendable, texts))
        and len({column.name for column in found.columns}) == len(found.columns)
        and all(_is_column(column, found.train_records) for column in found.columns)
        and (found.target is None or _is_target(found.target, found.train_records))
    )
    if not fits:
        raise ValueError


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def _is(value: Any, kind: Any) -> bool:
    """Return whether a value is of an annotation's type; integers are counts, and numbers that are not known NaN."""
    inner = get_args(kind)
    if kind is int:
        return type(value) is int and value >= 0
    if kind is float:
        return type(value) in (int, float) and not abs(value) > MAX_EXAMPLES * LARGEST**2
    if is_dataclass(kind):
        return type(value) is kind and all(_is(getattr(value, name), own) for name, own in _hints(kind).items())
    if get_origin(kind) is Literal:
        return value in inner
    if get_origin(kind) is tuple:
        return type(value) is tuple and all(_is(one, inner[0]) for one in value)
    if get_origin(kind) is Mapping:
        return isinstance(value, dict) and all(type(key) is str and _is(one, inner[1]) for key, one in value.items())
    return any(_is(value, one) for one in inner) if inner else type(value) is kind


def _is_column(column: ColumnSummary, records: int) -> bool:
    return (
        is_sendable(column.name)
        and column.known + column.missing == records
        and max(column.distinct, column.other) <= records
        and _are_figures(column.mean, column.m2, column.quantiles)
        and (_are_tails(column) if column.knots else not column.tail and all(map(math.isnan, _tails(column))))
        and _are_categories(column.categories, MOST_CATEGORIES)
        and sum(column.categories.values()) + column.other <= column.known
    )


def _is_target(target: TargetSummary, records: int) -> bool:
    named = sum(target.classes.values())
    return (
        is_sendable(target.name)
        and target.known == records
        and max(target.distinct, target.rare) <= records
        and _are_figures(target.mean, target.m2, target.quantiles)
        and _are_categories(target.classes, MOST_CLASSES)
        and (not (target.classes or target.rare) or named + target.rare == records)
    )


def _are_categories(counts: Mapping[str, int], most: int) -> bool:
    return len(counts) <= most and all(map(is_sendable, counts)) and all(one >= 1 for one in counts.values())


def _are_figures(mean: float, m2: float, quantiles: Sequence[float] = ()) -> bool:
    """Return whether mean and sum of squared deviations are both known or neither, and quantiles three or none."""
    known = not math.isnan(mean)
    return (
        known != math.isnan(m2)
        and not m2 < 0
        and all(abs(one) <= LARGEST for one in (*([mean] if known else []), *quantiles))
        and len(quantiles) in (0, 3)
        and list(quantiles) == sorted(quantiles)
    )


def _tails(column: ColumnSummary) -> tuple[float, ...]:
    return column.inner_mean, column.inner_m2, column.skew, column.kurtosis


def _are_tails(column: ColumnSummary) -> bool:
    """Return whether all of a column's tails was sent. Of n values the kurtosis is n at most, in two digits."""
    return (
        1 <= column.tail <= column.known // 10
        and column.m2 > 0
        and _are_figures(column.inner_mean, column.inner_m2)
        and all(abs(one) <= LARGEST for one in (*_tails(column), *column.knots))
        and len(column.knots) == len(INNER) + 2
        and list(column.knots) == sorted(column.knots)
        and 0 <= column.kurtosis <= 1.1 * column.known
        and abs(column.skew) <= 1.1 * math.sqrt(column.known)
    )
