"""Scores of a test, beside its loss and accuracy: how a reply carries them, and how they are checked."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.records import config_record, entries

RANGES: dict[str, tuple[float, float]] = {
    "balanced_accuracy": (0.0, 1.0),
    "macro_f1": (0.0, 1.0),
    "auc": (0.0, 1.0),
    "log_loss": (0.0, kinds.DIVERGED),
    "r2": (-kinds.DIVERGED, 1.0),
    "mae": (0.0, kinds.DIVERGED),
    "rmse": (0.0, kinds.DIVERGED),
}
"""Least and largest value of each score, by the name under which it is sent."""

CONFUSION = "confusion"
_NAMES = {*RANGES, CONFUSION}
MOST_LABELS = 10_000
"""Labels of a confusion are below this: a client must not be able to make the server's tables large."""


@dataclass(frozen=True)
class SentScores:
    """Scores of one test.

    Parameters
    ----------
    values
        By name; one that is not defined on the client's test set is not there.
    confusion
        A label, what was predicted for it, how often; the next label, sorted, in one sequence. Empty where the client
        does not tell, or has no labels.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    confusion: tuple[int, ...] = ()


def pack_scores(values: Mapping[str, float], confusion: Sequence[int]) -> ConfigRecord:
    """Return the record; a reply carries it under `kinds.SCORES`."""
    # Not among the metrics: Flower's own strategies average those, and need the same ones of every client.
    return config_record({**values, CONFUSION: list(confusion)} if confusion else values)


def read_scores(content: RecordDict, num_examples: int, accuracy: float | None) -> SentScores:
    """Return the scores of a reply, none where it has none.

    Parameters
    ----------
    content
        The reply.
    num_examples, accuracy
        What it says beside them: the counts must fit both.

    Raises
    ------
    MalformedMessage
        If a score is unknown or out of its range, or the counts are no counts or do not fit.
    """
    record = entries(content).get(kinds.SCORES)
    if record is None:
        return SentScores()
    told = entries(record) if isinstance(record, ConfigRecord) else None
    if told is None or not told.keys() <= _NAMES:
        raise MalformedMessage(f"record {kinds.SCORES!r} holds other things than {', '.join([*RANGES, CONFUSION])}")
    values: dict[str, float] = {}
    for name, (least, most) in RANGES.items():
        if name in told:
            value = told[name]
            # A NaN passes no comparison.
            if type(value) is not float or not least <= value <= most:
                raise MalformedMessage(f"{name} is no number from {least:g} to {most:g}")
            values[name] = value
    counts = _checked(told[CONFUSION], num_examples, accuracy) if CONFUSION in told else ()
    return SentScores(values, counts)


def _checked(sent: object, num_examples: int, accuracy: float | None) -> tuple[int, ...]:
    """Return the counts of a confusion, as they came."""
    if not isinstance(sent, list) or not sent or len(sent) % 3 or set(map(type, sent)) != {int}:
        raise MalformedMessage(f"{CONFUSION} is no list of label, prediction and count")
    if min(sent) < 0 or max(sent) > max(num_examples, MOST_LABELS):
        raise MalformedMessage(f"{CONFUSION} holds a number that is no label and no count")
    # Most have a few cells, of which a call of NumPy takes longer than all of this.
    labels, predicted, counts = sent[0::3], sent[1::3], sent[2::3]
    cells = list(zip(labels, predicted, strict=True))
    is_sorted = all(map(operator.lt, cells, islice(cells, 1, None)))
    if max(*labels, *predicted) >= MOST_LABELS or not is_sorted or min(counts) < 1:
        raise MalformedMessage(f"{CONFUSION} is not sorted, counts nothing, or has labels of {MOST_LABELS} or more")
    if sum(counts) != num_examples:
        raise MalformedMessage(f"{CONFUSION} counts {sum(counts)} samples of {num_examples}")
    right = sum(count for (label, guess), count in zip(cells, counts, strict=True) if label == guess) / num_examples
    if accuracy is None or abs(right - accuracy) > 1e-9:
        raise MalformedMessage(f"{CONFUSION} has an accuracy of {right}, but {accuracy} was told")
    return tuple(sent)
