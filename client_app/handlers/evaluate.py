"""`evaluate`: loss and accuracy of one model on this client's test data."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.local_training import test_result
from florets.client_app.outgoing import Number, reply, reported
from florets.task.wire import kinds


def evaluate(client: Client) -> RecordDict:
    """Test the model that came on this client's test set."""
    loss, accuracy, num_examples = test_result(client)
    metrics: dict[str, Number] = {kinds.EVAL_LOSS: reported(loss), kinds.NUM_EXAMPLES: num_examples}
    if accuracy is not None:
        metrics[kinds.EVAL_ACCURACY] = accuracy
    return reply(None, metrics)
