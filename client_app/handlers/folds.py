"""`train.folds` and `query.folds`: one common model trained on folds of this client's data, for discovery."""

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.messages import reply
from florets.client_app.training import augmentation, update
from florets.task.randomness import Purpose, generator
from florets.task.training.folds import LEARNING_RATE, disjoint_folds, fold_changes, on_folds
from florets.task.wire import kinds
from florets.task.wire.folds import RowForm


def train_folds(client: Client) -> RecordDict:
    """Do as `train` on all data, and send beside the update what the folds changed in the common model.

    The common model is the one to train, or the record `common` where the federation has trained on since.
    """
    arrays, metrics = update(client, client.states()[0])
    common = kinds.COMMON if kinds.COMMON in client.content else kinds.ARRAYS
    return reply(arrays, metrics, **{kinds.FOLDS: _rows(client, common)})


def query_folds(client: Client) -> RecordDict:
    """Send what the folds change in the model that came, and nothing else."""
    rows = {kinds.FOLDS: _rows(client, kinds.ARRAYS)}
    return reply(None, {kinds.NUM_EXAMPLES: client.num_examples}, **rows)


def _rows(client: Client, record: str) -> ArrayRecord:
    """Return the compressed change of the trainable parameters on each fold, (m, columns).

    One row, of all data, where there are fewer different records than folds, and where the message asks for it of a
    client whose records are all of one class.
    """
    data, folds = client.data, int(client.number(kinds.NUM_FOLDS))
    # Of one fold alone nothing is held out: it takes what is there.
    size = int(client.number(kinds.FOLD_SIZE)) if folds > 1 else client.num_examples
    rng = client.random(Purpose.FOLDS)
    if client.config.get(kinds.FOLD_CLASSES) is True and bool((data.y_train == data.y_train[0]).all()):
        parts = [np.arange(len(data.y_train), dtype=np.int64)]
    else:
        parts = disjoint_folds(data.x_train, data.y_train, folds, size, rng, data.subjects)
    rate, steps = client.number(kinds.FOLD_RATE, LEARNING_RATE), int(client.number(kinds.FOLD_STEPS))
    changes = fold_changes(
        client.module,
        client.states(record)[0],
        data.x_train,
        data.y_train,
        client.loss,
        parts,
        on_folds(client.training, steps, rate),
        rng,
        client.names(kinds.UNTRAINED),
        augmentation(client),
    )
    form = RowForm.read(client.config.get(kinds.FOLD_UPLOAD), int(client.number(kinds.FOLD_WIDTH)), changes.shape[1])
    rng = generator(int(client.number(kinds.FOLD_SEED)), 0, Purpose.FOLD_SKETCH)
    return ArrayRecord({kinds.FOLDS: Array(form.pack(changes, rng))})
