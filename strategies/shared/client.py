"""Client handlers that several algorithms share: folds for discovery, and two-level training."""

from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.training import packed, trained, training_fields, update
from florets.strategies.shared.messages import BilevelUpdate, FoldRows, FoldUpdate
from florets.task.randomness import Purpose, generator
from florets.task.training.folds import disjoint_folds, on_folds, rows_of_folds
from florets.task.training.objective import Anchored, Objective
from florets.task.wire import kinds
from florets.task.wire.codec import pack
from florets.task.wire.folds import LEARNING_RATE, RowForm


def train_folds(client: Client) -> RecordDict:
    """Do as `train` on all data, and send with the update what the folds changed in the common model.

    The common model is the one to train, or the record `common` where the federation has trained on since.
    """
    own = update(client, client.states()[0])
    common = kinds.COMMON if kinds.COMMON in client.content else kinds.ARRAYS
    return pack(FoldUpdate, **own, **training_fields(client), rows=_rows(client, common))


def query_folds(client: Client) -> RecordDict:
    """Send what the folds change in the model that came, and nothing else."""
    return pack(FoldRows, rows=_rows(client, kinds.ARRAYS), num_examples=client.num_examples)


def _rows(client: Client, record: str) -> NDArray[np.floating]:
    """Return the compressed change of the trainable parameters on each fold, (m, columns).

    One row, of all data, where there are too few different records, or all are of one class and the message asks for
    it.
    """
    data, folds = client.data, int(client.number(kinds.NUM_FOLDS))
    # Of one fold alone nothing is held out: it takes what is there.
    size = int(client.number(kinds.FOLD_SIZE)) if folds > 1 else client.num_examples
    estimates, rng = client.config.get(kinds.FOLD_ESTIMATES) is True, client.random(Purpose.FOLDS)
    if client.config.get(kinds.FOLD_CLASSES) is True and bool((data.y_train == data.y_train[0]).all()):
        parts = [np.arange(len(data.y_train), dtype=np.int64)]
    else:
        # An estimate is of all records, a part for each fold.
        drawn = client.num_examples if estimates else size
        parts = disjoint_folds(data.x_train, data.y_train, folds, drawn, rng, data.subjects)
    rate, steps = client.number(kinds.FOLD_RATE, LEARNING_RATE), int(client.number(kinds.FOLD_STEPS))
    changes = rows_of_folds(
        client.module,
        client.states(record)[0],
        data.x_train,
        data.y_train,
        client.loss,
        parts,
        size,
        on_folds(client.training, steps, rate),
        rng,
        client.names(kinds.UNTRAINED),
        estimates,
    )
    form = RowForm.read(int(client.number(kinds.FOLD_WIDTH)), changes.shape[1])
    rng = generator(int(client.number(kinds.FOLD_SEED)), 0, Purpose.FOLD_SKETCH)
    return form.pack(changes, rng)


def train_bilevel(client: Client) -> RecordDict:
    """Return both models after local training, and the loss of the first.

    Both are trained in the same order of the samples: the draws are named by round, purpose and client.

    Source: Zeng et al. 2023 (StoCFL), the clients' part of the bi-level optimisation; Li et al. 2021 (Ditto), Alg. 1.
    """
    # Packed at once: the arrays may be the memory of the one module that the global model is loaded into.
    mine = trained_near(client)
    both, _ = trained(client, client.states(kinds.GLOBAL)[0])
    return pack(BilevelUpdate, **mine, shared=both)


def trained_near(client: Client) -> dict[str, Any]:
    """Return the fields of an `Update`: the model trained with the term mu/2 |w - the message's second model|^2."""
    mu = client.number(kinds.GLOBAL_MU)
    objective = Objective(terms=(Anchored(mu, client.states(kinds.GLOBAL)[0]),)) if mu else None
    arrays, loss = trained(client, client.states()[0], objective=objective)
    return {"values": packed(arrays), "train_loss": loss, "num_examples": client.num_examples}
