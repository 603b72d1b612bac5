"""Read clients' replies. Nothing in a reply is trusted: each reader returns checked values or refuses the reply."""

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, MetricRecord, MetricRecordValues, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Layout, MalformedMessage, PackedVector, Vector, largest_values, write_array
from florets.task.wire.records import entries
from florets.task.wire.scores import SentScores, read_scores
from florets.task.wire.sums import PARTS, PartSums, read_sums

Metrics = Mapping[str, MetricRecordValues]
"""A reply's numbers, by name."""

_LARGEST = sys.float_info.max

MAX_EXAMPLES = 10**9
"""Guards sums of counts against overflow; what is plausible the other clients' counts say (`base.admission`)."""


@dataclass(frozen=True)
class Losses:
    """Reply to `evaluate.losses`: mean loss of each model (K,), and whether the client's process kept the models.

    The loss of a model that diverged is infinite.
    """

    losses: npt.NDArray[np.float64]
    num_examples: int
    kept: bool


@dataclass(frozen=True)
class Update:
    """Reply to a training message: new parameters or a gradient (R,) of model `model`.

    `stable` is the client's declaration that its last assignments are equal; False where it was not asked. `arrays`
    and `numbers` are what a handler of an author's own returns beside the model, by name; arrays are flat (R,).
    """

    model: int
    values: Vector | PackedVector
    num_examples: int
    train_loss: float
    losses: npt.NDArray[np.float64] | None = None
    stable: bool = field(default=False, kw_only=True)
    arrays: Mapping[str, Vector] = field(default_factory=dict, kw_only=True)
    numbers: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    @property
    def vector(self) -> Vector:
        """The values as float64; where they are kept as they were sent, new at every call."""
        return self.values.unpacked() if isinstance(self.values, PackedVector) else self.values

    def add_scaled(self, factor: float, total: Vector) -> None:
        """Add ``factor * self.vector`` to `total` in place."""
        if isinstance(self.values, PackedVector):
            self.values.add_scaled(factor, total)
        else:
            total += np.multiply(self.values, factor)

    @property
    def others(self) -> npt.NDArray[np.floating] | None:
        """All that the server will use in place of `vector` or beside it; None where there is nothing else."""
        return np.concatenate(list(self.arrays.values())) if self.arrays else None


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


def largest_of(updates: Sequence[Update]) -> npt.NDArray[np.float64]:
    """Return the largest absolute value in each update's `vector`, (P,)."""
    packed = [update.values for update in updates if isinstance(update.values, PackedVector)]
    if len(packed) == len(updates):
        return largest_values(packed)
    return np.array([np.abs(update.vector).max(initial=0.0) for update in updates], dtype=np.float64)


def read_losses(content: RecordDict, num_models: int) -> Losses:
    """Read a loss vector of length `num_models`.

    Raises
    ------
    MalformedMessage
        If keys, types, the number of losses or a value is wrong.
    """
    metrics = reply_metrics(content, {kinds.MODEL_LOSSES, kinds.NUM_EXAMPLES, kinds.KEPT}, arrays=False)
    return Losses(reply_losses(metrics, num_models), example_count(metrics), _flag(metrics, kinds.KEPT))


def read_update(
    content: RecordDict, layout: Layout, model: int, returns: Sequence[str] = (), numbers: Sequence[str] = ()
) -> Update:
    """Read the update of the model that the client was told to train.

    Parameters
    ----------
    returns, numbers
        Names of the records of this layout, and of the numbers, that must come beside the model.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong.
    """
    keys = {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, *numbers}
    metrics = reply_metrics(content, keys, arrays=True, optional={kinds.STABLE}, beside=returns)
    return Update(
        model,
        _update_values(content, layout),
        example_count(metrics),
        finite_number(metrics, kinds.TRAIN_LOSS),
        stable=kinds.STABLE in metrics and _flag(metrics, kinds.STABLE),
        arrays={name: _update_values(content, layout, name).unpacked() for name in returns},
        numbers={name: finite_number(metrics, name) for name in numbers},
    )


@dataclass(frozen=True)
class Answer:
    """Reply to a query of an author's own: its arrays and numbers by name, and the client's number of examples."""

    arrays: Mapping[str, npt.NDArray[np.float32]]
    numbers: Mapping[str, float]
    num_examples: int


def read_answer(content: RecordDict, returns: Mapping[str, Sequence[int]], numbers: Sequence[str]) -> Answer:
    """Read the reply to a query.

    Parameters
    ----------
    returns
        Shape of each array, by name.
    numbers
        Names of the numbers.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong.
    """
    metrics = reply_metrics(content, {kinds.NUM_EXAMPLES, *numbers}, arrays=bool(returns))
    found = {name: finite_number(metrics, name) for name in numbers}
    arrays: dict[str, npt.NDArray[np.float32]] = {}
    if returns:
        zeros = {name: write_array(np.zeros(tuple(shape), dtype=np.float32)) for name, shape in returns.items()}
        layout = Layout.of(zeros)
        flat = _update_values(content, layout).unpacked().astype(np.float32)
        arrays = {entry.name: flat[entry.place].reshape(entry.shape) for entry in layout.entries}
    return Answer(arrays, found, example_count(metrics))


def read_selected_update(content: RecordDict, layout: Layout, num_models: int) -> Update:
    """Read the update of the model that the client chose among `num_models`.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, or the chosen index is not one of the models.
    """
    keys = {kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES, kinds.CHOSEN_MODEL, kinds.MODEL_LOSSES}
    metrics = reply_metrics(content, keys, arrays=True)
    chosen = metrics[kinds.CHOSEN_MODEL]
    if not isinstance(chosen, int) or not 0 <= chosen < num_models:
        raise MalformedMessage(f"chosen model {chosen!r} is not one of 0 to {num_models - 1}")
    losses = reply_losses(metrics, num_models)
    examples, train_loss = example_count(metrics), finite_number(metrics, kinds.TRAIN_LOSS)
    return Update(chosen, _update_values(content, layout), examples, train_loss, losses)


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
    parts = ("", kinds.VALIDATED) if validation else ("",)
    prefixes = [model + part for model in (("", kinds.TUNED) if tuned else ("",)) for part in parts]
    counts = {part + kinds.NUM_EXAMPLES for part in parts}
    metrics = reply_metrics(
        content,
        counts | {prefix + kinds.EVAL_LOSS for prefix in prefixes},
        arrays=False,
        optional={prefix + kinds.EVAL_ACCURACY for prefix in prefixes},
        beside={kinds.SCORES} if sums_of is None else {kinds.SCORES, kinds.TEST_SUMS},
    )
    if len({prefix + kinds.EVAL_ACCURACY in metrics for prefix in prefixes}) > 1:
        raise MalformedMessage(f"{kinds.EVAL_ACCURACY} came for some of its tests only")

    names = [name for name in PARTS if (tuned or "tuned" not in name) and (validation or "validation" not in name)]
    results = dict(
        zip(
            names,
            (_test(metrics, prefix, kinds.VALIDATED if kinds.VALIDATED in prefix else "") for prefix in prefixes),
            strict=True,
        )
    )
    told = {name: (count, loss, accuracy) for name, (loss, accuracy, count) in results.items()}
    sums, train = ({}, None) if sums_of is None else read_sums(content, sums_of, told)
    found = {name: TestResult(*result, sums=sums.get(name)) for name, result in results.items()}
    plain, again = found["test"], found.get("tuned_test")
    return replace(
        plain,
        validation=found.get("validation"),
        tuned=None if again is None else replace(again, validation=found.get("tuned_validation")),
        scores=read_scores(content, plain.num_examples, plain.accuracy),
        train=train,
    )


def _test(metrics: Metrics, prefix: str, part: str) -> tuple[float, float | None, int]:
    """Return loss, accuracy and samples of the test on one part of the data; `prefix` also says of which model."""
    name = prefix + kinds.EVAL_ACCURACY
    accuracy = finite_number(metrics, name) if name in metrics else None
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise MalformedMessage(f"{name} is {accuracy}, not between 0 and 1")
    (loss,) = _checked_losses([finite_number(metrics, prefix + kinds.EVAL_LOSS)])
    return loss, accuracy, example_count(metrics, part + kinds.NUM_EXAMPLES)


def check_examples(claimed: int | None, introduced: int | None) -> None:
    """Hold a reply's count of examples to the one that the client gave when it introduced itself.

    The count is a client's weight in averages, and the introduction's was held to the other clients'. A reply may be
    about fewer: part of the data can be held out. None: not known.

    Raises
    ------
    MalformedMessage
        If it claims more. Where the data of simulated clients change, `introduced` is the server's own count.
    """
    if claimed is not None and introduced is not None and claimed > introduced:
        raise MalformedMessage(
            f"{kinds.NUM_EXAMPLES} is {claimed}, more than the {introduced} of its introduction; a client's data "
            "must stay the same during a run"
        )


def reply_metrics(
    content: RecordDict,
    keys: set[str],
    *,
    arrays: bool,
    config: bool = False,
    optional: set[str] | None = None,
    beside: Collection[str] = (),
) -> Metrics:
    """Return the metrics of a reply that must hold exactly these keys, and no other records than those named.

    Parameters
    ----------
    keys, optional
        Metrics that must and that may be there.
    arrays, config
        Whether the reply also carries the record of that name.
    beside
        Records that may be there as well.

    Raises
    ------
    MalformedMessage
        If a record or a metric is missing, of another type, or one too many.
    """
    records, wanted = entries(content), _wanted(arrays, config)
    if records.keys() != wanted and records.keys() - {kinds.WORK, *beside} != wanted:
        raise MalformedMessage(f"the reply holds the records {sorted(content)}, not {sorted(wanted)}")
    record = records[kinds.METRICS]
    if not isinstance(record, MetricRecord):
        raise MalformedMessage(f"record {kinds.METRICS!r} is a {type(record).__name__}, not a MetricRecord")
    metrics: Metrics = entries(record)
    if metrics.keys() != keys and not keys <= metrics.keys() <= keys | (optional or set()):
        raise MalformedMessage(f"the reply holds the metrics {sorted(metrics)}, not {sorted(keys)}")
    return metrics


@lru_cache
def _wanted(arrays: bool, config: bool) -> frozenset[str]:
    return frozenset({kinds.METRICS, *([kinds.ARRAYS] if arrays else []), *([kinds.CONFIG] if config else [])})


def update_vector(content: RecordDict, layout: Layout) -> Vector:
    """Return the reply's model or gradient (R,); raise MalformedMessage where it is not of this layout."""
    return _update_values(content, layout).unpacked()


def _update_values(content: RecordDict, layout: Layout, name: str = kinds.ARRAYS) -> PackedVector:
    arrays = content.get(name)
    if not isinstance(arrays, ArrayRecord):
        raise MalformedMessage(f"record {name!r} is a {type(arrays).__name__}, not an ArrayRecord")
    return layout.checked(arrays)


def example_count(metrics: Metrics, name: str = kinds.NUM_EXAMPLES) -> int:
    """Return the number of examples; raise MalformedMessage where it is none from 1 to `MAX_EXAMPLES`."""
    number = metrics[name]
    if not isinstance(number, int) or not 1 <= number <= MAX_EXAMPLES:
        raise MalformedMessage(f"{name} is {number!r}, not an integer from 1 to {MAX_EXAMPLES}")
    return number


def finite_number(metrics: Metrics, key: str) -> float:
    """Return one metric; raise MalformedMessage where it is a list or not finite."""
    number = metrics[key]
    # An integer beyond every float would raise OverflowError in `isfinite` itself.
    if isinstance(number, list) or not (-_LARGEST <= number <= _LARGEST):
        raise MalformedMessage(f"{key} is no finite number")
    return float(number)


def reply_losses(metrics: Metrics, number: int, name: str = kinds.MODEL_LOSSES) -> npt.NDArray[np.float64]:
    """Return the losses (K,), infinite where a model diverged; raise MalformedMessage where they are no K losses."""
    losses = metrics[name]
    if not isinstance(losses, list) or len(losses) != number:
        found = len(losses) if isinstance(losses, list) else "no"
        raise MalformedMessage(f"{found} {name} came, not {number}")
    return _losses(losses)


def _flag(metrics: Metrics, key: str) -> bool:
    value = metrics[key]
    if value not in (0, 1):
        raise MalformedMessage(f"{key} is {value!r}, not 0 or 1")
    return bool(value)


def _losses(values: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.array(_checked_losses(values), dtype=np.float64)


def _checked_losses(values: Sequence[float]) -> list[float]:
    # Honest clients report a model that diverged as DIVERGED: a NaN or more than that is no loss but a fault.
    # Compared before NumPy sees them: an integer beyond every float makes it raise OverflowError.
    if not all(0 <= value <= kinds.DIVERGED for value in values):
        raise MalformedMessage(f"a loss is NaN, negative or larger than {kinds.DIVERGED:g}")
    return [math.inf if value == kinds.DIVERGED else float(value) for value in values]
