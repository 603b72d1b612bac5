"""`evaluate`: loss and accuracy of one model on this client's test data, and of a copy that it fine-tunes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.incoming import train_settings
from florets.client_app.local_training import result_on, trained
from florets.client_app.outgoing import Number, reply, reported
from florets.task.client_data import TestedOn
from florets.task.randomness import Purpose
from florets.task.wire import kinds


def evaluate(client: Client) -> RecordDict:
    """Test the model that came on this client's test set, and where the message asks for it a fine-tuned copy too."""
    metrics = _tests(client)
    if epochs := client.number(kinds.FINE_TUNE_EPOCHS, 0):
        settings = replace(train_settings(client.config), local_epochs=epochs, local_steps=0)
        arrays, _ = trained(client, client.states()[0], Purpose.FINE_TUNING, settings=settings)
        tuned = {kinds.TUNED + name: value for name, value in _tests(client, arrays).items()}
        # Both are tested on the same samples, whose number is told already.
        metrics |= {name: value for name, value in tuned.items() if not name.endswith(kinds.NUM_EXAMPLES)}
    return reply(None, metrics)


def _tests(client: Client, arrays: Mapping[str, NDArray[Any]] | None = None) -> dict[str, Number]:
    """Return a model's test result and, where the message asks for it, that on the validation data."""
    metrics: dict[str, Number] = {}
    parts: dict[TestedOn, str] = {"test": ""}
    if client.config.get(kinds.VALIDATION) is True:
        parts["validation"] = kinds.VALIDATED
    for part, prefix in parts.items():
        loss, accuracy, num_examples = result_on(client, part, arrays)
        metrics |= {prefix + kinds.EVAL_LOSS: reported(loss), prefix + kinds.NUM_EXAMPLES: num_examples}
        if accuracy is not None:
            metrics[prefix + kinds.EVAL_ACCURACY] = accuracy
    return metrics
