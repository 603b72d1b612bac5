"""Client handlers that several algorithms share: folds for discovery, two-level training, and features of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client, State
from florets.client_app.training import packed, told_of_training, trained, update
from florets.strategies.shared.messages import BilevelUpdate, FoldRows, FoldUpdate
from florets.task.randomness import Purpose, generator
from florets.task.training.features import features
from florets.task.training.folds import disjoint_folds, on_folds, rows_of_folds
from florets.task.training.losses import Anchored, Objective
from florets.task.training.modules import load
from florets.task.wire import kinds, noise
from florets.task.wire.codec import pack
from florets.task.wire.folds import LEARNING_RATE, RowForm


def train_folds(client: Client) -> RecordDict:
    """Do as `train` on all data, and send with the update what the folds changed in the common model.

    The common model is the one to train, or the record `common` where the federation has trained on since.
    """
    own = update(client, client.states()[0])
    common = kinds.COMMON if kinds.COMMON in client.content else kinds.ARRAYS
    return pack(FoldUpdate, **own, **told_of_training(client), **_rows(client, common))


def query_folds(client: Client) -> RecordDict:
    """Send what the folds change in the model that came, and nothing else."""
    examples = 1 if kinds.PRIVACY in client.config else client.num_examples
    return pack(FoldRows, **_rows(client, kinds.ARRAYS), num_examples=examples)


def _rows(client: Client, record: str) -> dict[str, Any]:
    """Return the compressed change of the trainable parameters on each fold, (m, columns), as a message's fields.

    One row, of all data, where there are fewer different records than folds, and where the message asks for it of a
    client whose records are all of one class.
    """
    data, folds = client.data, int(client.number(kinds.NUM_FOLDS))
    # Of one fold alone nothing is held out: it takes what is there.
    size = int(client.number(kinds.FOLD_SIZE)) if folds > 1 else client.num_examples
    estimates, rng = client.config.get(kinds.FOLD_ESTIMATES) is True, client.random(Purpose.FOLDS)
    if client.config.get(kinds.FOLD_CLASSES) is True and bool((data.y_train == data.y_train[0]).all()):
        parts, alike = [np.arange(len(data.y_train), dtype=np.int64)], False
    else:
        # An estimate is of all records, a part for each fold.
        drawn = client.num_examples if estimates else size
        parts, alike = disjoint_folds(data.x_train, data.y_train, folds, drawn, rng, data.subjects)
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
    form = RowForm.read(client.config.get(kinds.FOLD_UPLOAD), int(client.number(kinds.FOLD_WIDTH)), changes.shape[1])
    rng = generator(int(client.number(kinds.FOLD_SEED)), 0, Purpose.FOLD_SKETCH)
    rows = form.pack(changes, rng)
    if kinds.PRIVACY in client.config:
        noised = noise.noised_rows(rows, folds, client.number(kinds.PRIVACY_LOSS_NOISE))
        return {"rows": noised.astype(rows.dtype), "near_duplicates": None}
    # Sent by those alone whom it concerns: every message costs its bytes.
    return {"rows": rows, "near_duplicates": alike or None}


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
    """Return the fields of an `Update`: the model that came, trained with the term mu/2 |w - other|^2.

    The other model is the message's second one.
    """
    mu = client.number(kinds.GLOBAL_MU)
    objective = Objective(terms=(Anchored(mu, client.states(kinds.GLOBAL)[0]),)) if mu else None
    arrays, loss = trained(client, client.states()[0], objective=objective)
    return {"values": packed(arrays), "train_loss": loss, "num_examples": client.num_examples}


def class_labels(client: Client) -> NDArray[np.int64]:
    """Return the class of each training sample (n,)."""
    if client.loss != "cross_entropy":
        raise ValueError(f"prototypes need classes, which a task with task.loss={client.loss} does not have")
    labels: NDArray[np.int64] = client.data.y_train.cpu().numpy()
    return labels


def own_features(client: Client, state: State, head: Sequence[str]) -> NDArray[np.float64]:
    """Return the features (n, D) of the training samples in a model, the inputs of its head."""
    load(client.module, state)
    return features(client.module, client.data.x_train, head)


def copied(arrays: dict[str, NDArray[np.float32]]) -> State:
    """Return a model's entries in memory of their own: as trained they may be the memory of the one module."""
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


Features = NDArray[np.float64]
Labels = NDArray[np.int64]


def class_means(features: Features, labels: Labels, num_classes: int) -> tuple[NDArray[np.float32], Labels]:
    """Return the mean feature of each class that is there, (P, D) in the order of classes, and all counts (C,)."""
    counts = np.bincount(labels, minlength=num_classes)
    means = [features[labels == label].mean(axis=0) for label in np.flatnonzero(counts)]
    return np.stack(means).astype(np.float32), counts


def shares_and_spread(features: Features, labels: Labels, num_classes: int) -> tuple[NDArray[np.float32], float]:
    """Return each class's mean feature times its share of the samples, (P, D), and the spread of their estimate.

    The spread is (mean |f|^2 - sum_c |h_c|^2) / n, with h_c the rows, and never below 0.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867), the statistics of the combination of classifiers.
    """
    counts = np.bincount(labels, minlength=num_classes)
    rows = np.stack([features[labels == label].sum(axis=0) / len(labels) for label in np.flatnonzero(counts)])
    spread = (np.mean(np.sum(features**2, axis=1)) - np.sum(rows**2)) / len(labels)
    return rows.astype(np.float32), max(float(spread), 0.0)
