"""Exchanges that group clients before or between rounds: each trains a model alone."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base import outliers
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Round
from florets.strategies.core.outliers import lower_median
from florets.task.training.settings import KEYS
from florets.task.wire import Layout, kinds
from florets.task.wire.replies import Update, read_update


def ask_estimates(
    clients: Sequence[Client],
    r: Round,
    start: Models,
    epochs: int | None = None,
    layers: Sequence[str] = (),
    steps: int | None = None,
    known: float = 0.0,
    kind: str = kinds.ESTIMATE_TRAIN,
    is_judged: bool = True,
) -> Replies[Update]:
    """Let clients train the first model of `start`, each alone, for `epochs` or `steps`, at the rate of round 1.

    Only the layers with the prefixes `layers` are sent; none: all. `known` is the largest value of earlier replies,
    see `usual_size`; outliers are rejected unless `is_judged` is False.
    """
    layout = sent_layout(start, layers)
    settings: dict[str, object] = {kinds.ESTIMATE: kind}
    if KEYS["schedule"] in r.config:
        # At a rate that has fallen late clients hardly move.
        settings[KEYS["schedule"]] = "constant"
    if epochs is not None:
        settings[KEYS["local_epochs"]] = epochs
        if KEYS["local_steps"] in r.config:
            # The run's steps are those of a round; an estimate takes its own epochs.
            settings[KEYS["local_steps"]] = 0
    if steps is not None:
        settings[KEYS["local_steps"]] = steps
    if layers:
        settings[kinds.SENT_LAYERS] = list(layers)
    record = start.one(0)
    requests = [r.request(kinds.TRAIN_ESTIMATE, client, record, settings) for client in clients]
    replies = r.ask(requests, lambda _, content: read_update(content, layout, 0))
    return outliers.without_outliers(replies, r, known) if is_judged else replies


def usual_size(vectors: Iterable[NDArray[np.floating]]) -> float:
    """Return the largest value in the median of what clients sent, 0 of none: who comes later is compared with it."""
    largest = np.array([np.abs(vector).max(initial=0.0) for vector in vectors], dtype=np.float64)
    return lower_median(largest) if len(largest) else 0.0


def last_layer(models: Models) -> str:
    """Return the name prefix of the layer of the last trained entry."""
    last = [entry.name for entry in models.layout.entries if entry.is_trained and not entry.is_integer][-1]
    return last.rpartition(".")[0] or last


def sent_layout(models: Models, layers: Sequence[str]) -> Layout:
    """Return the layout of what `ask_estimates` is sent."""
    whole = models.layout
    if not layers:
        return whole
    sent = whole.mask(layers)
    names = [entry.name for entry in whole.entries if sent[entry.place].any()]
    record = models.one(0)
    return Layout.of({name: record[name] for name in names}, [name for name in models.untrained if name in names])
