"""Reply to `query.describe`: a site's description of its data, as JSON; nothing in it is trusted."""

import json
import math
from collections.abc import Mapping
from typing import Any, get_args

from flwr.app import ConfigRecord, RecordDict

from florets.task.data.tables.description import (
    INNER,
    MOST_CATEGORIES,
    MOST_CLASSES,
    ColumnSummary,
    Description,
    Kind,
    Role,
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
        raise ValueError(
            f"the table has {len(description.columns)} columns, too many to be described: name those that "
            "are needed, task.table.columns, or leave out others, drop."
        )
    return RecordDict({kinds.CONFIG: ConfigRecord({kinds.CLIENT_KEY: key, kinds.DESCRIPTION: text})})


def read_description(content: RecordDict) -> tuple[str, Description]:
    """Return what a client calls itself, and its description."""
    record = content.get(kinds.CONFIG)
    sent: Mapping[str, Any] = record if isinstance(record, ConfigRecord) else {}
    key, text = sent.get(kinds.CLIENT_KEY), sent.get(kinds.DESCRIPTION)
    if not isinstance(key, str) or not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise MalformedMessage("no description of data")
    try:
        _name(key)
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
    if found.form not in ("table", "archive", "images") or (found.form == "table" and found.target is None):
        raise ValueError("form")
    if found.target is not None and (found.form == "images" or (found.form == "archive" and found.classes)):
        raise ValueError("target")
    for number in (
        found.records,
        found.train_records,
        found.untargeted,
        found.unseen,
    ):
        _count(number, MAX_EXAMPLES)
    if not 1 <= found.train_records <= found.records:
        raise ValueError("records")
    if len(found.columns) > MOST_COLUMNS or len({column.name for column in found.columns}) < len(found.columns):
        raise ValueError("columns")
    for column in found.columns:
        _column(column, found.train_records)
    if found.target is not None:
        _target(found.target, found.train_records)
    for size in found.shape:
        _count(size, _MOST_VALUES, least=1)
    if math.prod(found.shape) > _MOST_VALUES:
        raise ValueError("shape")
    if found.group:
        _name(found.group)
    if found.group is None or type(found.regression) not in (bool, type(None)):
        raise ValueError("split")
    if (found.form == "table") == bool(found.shape) or len(found.shape) > 8 or len(found.classes) > 10_000:
        raise ValueError("shape")
    if type(found.are_pixels) is not bool or (found.are_pixels and found.form != "archive"):
        raise ValueError("scale")
    _features(found)
    if type(found.guessed) is not bool or (found.guessed and found.form != "table"):
        raise ValueError("encoding")
    if len(found.notes) > _MOST_NOTES or max(len(found.lacking), len(found.leaking)) > MOST_COLUMNS:
        raise ValueError("notes")
    if not set(found.trained) <= set(found.classes):
        raise ValueError("trained")
    for name in (*found.classes, *found.notes, *found.lacking, *found.leaking):
        _name(name)


def _column(column: ColumnSummary, records: int) -> None:
    _name(column.name)
    if column.kind not in get_args(Kind) or column.role not in get_args(Role):
        raise ValueError("kind")
    for number in (column.known, column.missing, column.distinct, column.other):
        _count(number, records)
    if column.known + column.missing != records or {type(column.repeats), type(column.whole)} != {bool}:
        raise ValueError("counts")
    _figures(column.mean, column.m2, column.quantiles)
    _shape(column)
    if _categories(column.categories) + column.other > column.known:
        raise ValueError("categories")


def _target(target: TargetSummary, records: int) -> None:
    _name(target.name)
    if target.known != records or type(target.numeric) is not bool or type(target.whole) is not bool:
        raise ValueError("target")
    _count(target.distinct, records)
    _count(target.rare, records)
    _figures(target.mean, target.m2, target.quantiles)
    named = _categories(target.classes)
    if len(target.classes) > MOST_CLASSES or ((target.classes or target.rare) and named + target.rare != records):
        raise ValueError("classes")


def _categories(counts: Mapping[str, Any]) -> int:
    if len(counts) > MOST_CATEGORIES:
        raise ValueError("categories")
    for name, count in counts.items():
        _name(name)
        _count(count, MAX_EXAMPLES, least=1)
    return sum(counts.values())


def _count(number: Any, most: int, least: int = 0) -> None:
    if type(number) is not int or not least <= number <= most:
        raise ValueError("count")


def _figures(mean: Any, m2: Any, quantiles: tuple[Any, ...]) -> None:
    """Check figures, of which mean and m2 are NaN where they are not known: null in JSON."""
    for number, most in ((m2, MAX_EXAMPLES * LARGEST**2), *((one, LARGEST) for one in (mean, *quantiles))):
        if type(number) not in (int, float) or abs(number) > most:
            raise ValueError("figure")
    if math.isnan(mean) != math.isnan(m2) or any(map(math.isnan, quantiles)):
        raise ValueError("figures")
    if m2 < 0 or len(quantiles) not in (0, 3) or list(quantiles) != sorted(quantiles):
        raise ValueError("figures")


def _features(found: Description) -> None:
    """Check what is sent of the numbers of an archive's inputs."""
    means, squares = found.feature_means, found.feature_m2
    if type(found.is_real) is not bool or len(means) != len(squares) or (means and not found.is_real):
        raise ValueError("features")
    if found.is_real and (found.form != "archive" or len(found.shape) != 1 or len(means) not in (0, *found.shape)):
        raise ValueError("features")
    for mean, m2 in zip(means, squares, strict=True):
        _figures(mean, m2, ())
    if any(map(math.isnan, means)):
        raise ValueError("features")


def _shape(column: ColumnSummary) -> None:
    """Check what is sent of a column's tails: all of it, or nothing."""
    figures = (column.inner_mean, column.inner_m2, column.skew, column.kurtosis)
    if not column.knots:
        if column.tail or not all(map(math.isnan, figures)):
            raise ValueError("tails")
        return
    _count(column.tail, column.known // 10, least=1)
    _figures(column.inner_mean, column.inner_m2, ())
    _figures(0.0, column.kurtosis, ())
    for number in (*column.knots, *figures):
        if type(number) not in (int, float) or not abs(number) <= LARGEST:
            raise ValueError("tails")
    # Of n values the kurtosis is n at most, in two digits.
    if len(column.knots) != len(INNER) + 2 or list(column.knots) != sorted(column.knots) or not column.m2 > 0:
        raise ValueError("tails")
    if column.kurtosis > 1.1 * column.known or abs(column.skew) > 1.1 * math.sqrt(column.known):
        raise ValueError("tails")


def _name(text: Any) -> None:
    if not isinstance(text, str) or not is_sendable(text):
        raise ValueError("name")
