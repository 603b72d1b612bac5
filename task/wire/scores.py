"""Reply to `evaluate`: a test's loss, accuracy and further scores; how they are carried and checked."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.codec import MAX_EXAMPLES, Form, Item, Loss, Number
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.records import config_record, entries
from florets.task.wire.sums import PARTS, RANGES, PartSums, read_sums

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


@dataclass(frozen=True)
class TestResult:
    """Reply to `evaluate`: mean loss and accuracy (None without labels) on the client's test set.

    `validation` is the same on its validation data, `tuned` the same of a copy that was fine-tuned first; None where
    they were not asked for. `scores` are of the plain test alone. `sums` are those of this test, `train` those of the
    training targets beside the plain test (`task.wire.sums`); None where they were not asked for, or did not come.
    """

    loss: float
    accuracy: float | None
    num_examples: int
    validation: "TestResult | None" = None
    tuned: "TestResult | None" = None
    scores: SentScores = field(default_factory=SentScores)
    sums: PartSums | None = field(default=None, compare=False)
    train: npt.NDArray[np.float64] | None = field(default=None, compare=False)


def read_evaluation(
    content: RecordDict, tuned: bool = False, validation: bool = False, sums_of: int | None = None
) -> TestResult:
    """Read a test result, with those of a fine-tuned copy and on validation data where they were asked for.

    Parameters
    ----------
    sums_of
        Classes of the task, 0 for values, where sums of the tests were asked for; None: they were not.

    Raises
    ------
    MalformedMessage
        If keys, types or a value is wrong.
    """
    found = _form(tuned, validation, sums_of is not None).read(content, {})
    names = [name for name in PARTS if (tuned or "tuned" not in name) and (validation or "validation" not in name)]
    accuracies = {name: found.get(("accuracy", name)) for name in names}
    if len({accuracy is None for accuracy in accuracies.values()}) > 1:
        raise MalformedMessage(f"{kinds.EVAL_ACCURACY} came for some of its tests only")
    tests = {
        name: (found["count", name.removeprefix("tuned_")], found["loss", name], accuracies[name]) for name in names
    }
    sums, train = ({}, None) if sums_of is None else read_sums(content, sums_of, tests)
    results = {
        name: TestResult(loss, accuracy, count, sums=sums.get(name))
        for name, (count, loss, accuracy) in tests.items()
    }
    plain, again = results["test"], results.get("tuned_test")
    return replace(
        plain,
        validation=results.get("validation"),
        tuned=None if again is None else replace(again, validation=results.get("tuned_validation")),
        scores=read_scores(content, plain.num_examples, plain.accuracy),
        train=train,
    )


_PREFIXES = dict(zip(PARTS, ("", kinds.VALIDATED, kinds.TUNED, kinds.TUNED + kinds.VALIDATED), strict=True))
"""Of the names of a test's metrics, by the test."""


@lru_cache
def _form(tuned: bool, validation: bool, sums: bool) -> Form:
    items: dict[Any, Item] = {}
    for name, prefix in _PREFIXES.items():
        if (tuned or "tuned" not in name) and (validation or "validation" not in name):
            items["loss", name] = Loss(prefix + kinds.EVAL_LOSS)
            items["accuracy", name] = Number(prefix + kinds.EVAL_ACCURACY, 0, 1)
            if "tuned" not in name:
                # Both models are tested on the same samples.
                items["count", name] = Number(prefix + kinds.NUM_EXAMPLES, 1, MAX_EXAMPLES, integer=True)
    optional = frozenset(key for key in items if key[0] == "accuracy")
    return Form(items, optional, others=frozenset({kinds.SCORES, *([kinds.TEST_SUMS] if sums else [])}))


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
                raise MalformedMessage(f"{name} is not a number from {least:g} to {most:g}")
            values[name] = value
    counts = _checked(told[CONFUSION], num_examples, accuracy) if CONFUSION in told else ()
    return SentScores(values, counts)


def _checked(sent: object, num_examples: int, accuracy: float | None) -> tuple[int, ...]:
    """Return the counts of a confusion, as they came."""
    if not isinstance(sent, list) or not sent or len(sent) % 3 or set(map(type, sent)) != {int}:
        raise MalformedMessage(f"{CONFUSION} is not a list of label, prediction and count")
    if min(sent) < 0 or max(sent) > max(num_examples, MOST_LABELS):
        raise MalformedMessage(f"{CONFUSION} holds a number that is neither a label nor a count")
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
        raise MalformedMessage(f"{CONFUSION} has another accuracy than the reply")
    return tuple(sent)
