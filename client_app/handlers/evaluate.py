"""`evaluate`: loss and accuracy of one model on this client's test data, and of a copy that it fine-tunes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.session import State
from florets.client_app.training import Number, reply, reported, result_on, trained
from florets.task.client_data import TestedOn
from florets.task.randomness import Purpose
from florets.task.tested import PartSums
from florets.task.training.figures import resampling, sums_of, target_sums
from florets.task.training.losses import Evaluated
from florets.task.training.scores import LOG_LOSS, in_unit, measured
from florets.task.wire import kinds
from florets.task.wire.evaluation import MIN_RECORDS, pack_scores, pack_sums
from florets.task.wire.flower import filled


def evaluate(client: Client, own: State | None = None) -> RecordDict:
    """Test the model that came, or `own`, which this client made of it; on request a fine-tuned copy as well."""
    arrays = None
    if own is not None:
        client.module.load_state_dict(own)
        arrays = {name: value.cpu().numpy() for name, value in own.items()}
    results, tuned = _tests(client, arrays), None
    if epochs := client.number(kinds.FINE_TUNE_EPOCHS, 0):
        tuning = replace(client.training, local_epochs=epochs, local_steps=None)
        state = client.states()[0] if own is None else own
        arrays, _ = trained(client, state, Purpose.FINE_TUNING, training=tuning)
        tuned = _tests(client, arrays)
    return answer_tests(client, results, tuned)


def answer_tests(
    client: Client, results: Mapping[TestedOn, Evaluated], tuned: Mapping[TestedOn, Evaluated] | None
) -> RecordDict:
    """Return the reply of a test, by the part of the data, and of the same after fine-tuning where that was asked."""
    metrics = _metrics(client, results)
    if tuned is not None:
        tuned_metrics = {kinds.TUNED + name: value for name, value in _metrics(client, tuned).items()}
        # Both are tested on the same samples, whose number is among the metrics already.
        metrics |= {name: value for name, value in tuned_metrics.items() if not name.endswith(kinds.NUM_EXAMPLES)}
    content = reply(None, metrics)
    scores = results["test"].scores
    values = in_unit(scores, client.task.data.target_scale)
    if client.loss == "cross_entropy" and values and (loss := reported(results["test"].loss)) < kinds.DIVERGED:
        values[LOG_LOSS] = loss
    if measure := client.task.spec.measure:
        values |= _measured(client, measure, results)
    if values:
        filled(content, {kinds.SCORES: pack_scores(values)})
    if (
        client.config.get(kinds.TEST_SUMS) is True
        and client.shares_statistics
        and scores
        and client.num_examples >= MIN_RECORDS
    ):
        classes = client.task.num_outputs if client.loss == "cross_entropy" else 0
        parts = dict(_sums(client, classes, {"": results, kinds.TUNED: tuned or {}}))
        train = target_sums(_in_unit(client, client.data.y_train.cpu().numpy()), classes)
        filled(content, {kinds.TEST_SUMS: pack_sums(parts, train)})
    return content


def _measured(client: Client, measure: str, results: Mapping[TestedOn, Evaluated]) -> dict[str, float]:
    """Return the user's measure on each part of the data."""
    found: dict[str, float] = {}
    for part, test in results.items():
        y = client.data.part(part)[1].cpu()
        assert test.outputs is not None
        outputs = torch.from_numpy(test.outputs).float().reshape(len(y), -1)
        prefix = kinds.VALIDATED if part == "validation" else ""
        found |= {prefix + name: value for name, value in measured(measure, outputs, y).items()}
    return found


def _sums(
    client: Client, num_classes: int, tests: Mapping[str, Mapping[TestedOn, Evaluated]]
) -> Iterator[tuple[str, PartSums]]:
    """Yield the sums of each test, by the model's prefix and the part of the data."""
    for model, results in tests.items():
        for part, found in results.items():
            x, y = (values.cpu().numpy() for values in client.data.part(part))
            if found.outputs is not None:
                outputs, targets = _in_unit(client, found.outputs), _in_unit(client, y)
                sums = sums_of(outputs, targets, num_classes, resampling(x, y))
                if sums is not None:
                    yield f"{model}{part}", sums


def _in_unit(client: Client, values: NDArray[Any]) -> NDArray[Any]:
    """Return a regression's outputs or targets in the unit that the targets came in, but for their mean."""
    scale = client.task.data.target_scale
    return values if scale == 1 else values.astype(np.float64) * scale


def _tests(client: Client, arrays: Mapping[str, NDArray[Any]] | None = None) -> dict[TestedOn, Evaluated]:
    """Return the results of a model on the test set and, where the message asks for it, on the validation data."""
    return {part: result_on(client, part, arrays) for part in tested_parts(client)}


def tested_parts(client: Client) -> list[TestedOn]:
    """Return the parts of this client's data that the message asks to test on."""
    return ["test", "validation"] if client.config.get(kinds.VALIDATION) is True else ["test"]


def _metrics(client: Client, results: Mapping[TestedOn, Evaluated]) -> dict[str, Number]:
    """Return a reply's metrics of one model."""
    metrics: dict[str, Number] = {}
    for part, found in results.items():
        prefix = kinds.VALIDATED if part == "validation" else ""
        metrics[prefix + kinds.EVAL_LOSS] = reported(found.loss)
        metrics[prefix + kinds.NUM_EXAMPLES] = client.data.part(part)[0].shape[0]
        if found.accuracy is not None:
            metrics[prefix + kinds.EVAL_ACCURACY] = found.accuracy
    return metrics
