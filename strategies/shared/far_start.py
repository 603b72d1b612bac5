"""Round 1 from models of clients that are far from each other: the start `first_round=farthest` of CLoVE and IFCA."""

from collections.abc import Mapping

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.averaging import ModelAveraging
from florets.strategies.base.context import Round
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray
from florets.strategies.core.starts import farthest
from florets.strategies.shared.loss_outliers import without_outliers
from florets.task.randomness import Purpose
from florets.task.wire import kinds
from florets.task.wire.replies import Update, read_update


def far_models(context: Round) -> Models:
    """Return K models, each trained by one client on its own data: a k-means++ over clients.

    All participants train the first model. That of a random one is chosen, then again and again that of the client
    for which the chosen models are worst. This costs an exchange for the models, and K - 1 for their losses, each of
    one model. With fewer usable clients than K the other models stay as they are.

    Raises
    ------
    RoundFailed
        If fewer clients than the quorum sent a valid model, or losses.

    Source: Mansour et al. 2020 (HypCluster), in google/fedjax.
    """
    models, layout = context.models, context.models.layout
    if models.count == 1:
        return models

    def read(_: str, content: RecordDict) -> Update:
        return read_update(content, layout, 0)

    settings = {kinds.REPLY: kinds.REPLY_MODEL}
    with context.meter.part("start"):
        requests = [context.request(kinds.TRAIN, client, models.one(0), settings) for client in context.participants]
        replies = context.reject_outliers(context.ask(requests, read))
        context.require(replies, "model")
        vectors = {key: update.vector for key, update in replies.ok}
        keys = sorted(vectors)
        chosen = [keys[int(context.random(Purpose.FIRST_ROUND).integers(len(keys)))]]
        losses = {key: np.zeros(0) for key in keys}
        while len(chosen) < models.count:
            losses = _more_losses(context, models.replaced(vectors[chosen[-1]][np.newaxis]), losses)
            left = sorted(losses)
            rows = [row for row, key in enumerate(left) if key in chosen]
            if len(rows) == len(left):
                break
            far = farthest(np.stack([losses[key] for key in left]), np.array(rows, dtype=np.int64))
            chosen.append(left[far])
    found = np.stack([vectors[key] for key in chosen])
    # One client each, so that a mean is that client's model; layers that all models share are means of them all.
    bank = ModelAveraging("uniform").next_bank(models, found, np.arange(len(found)), np.ones(len(found)))
    return models.replaced(bank)


def _more_losses(context: Round, model: Models, losses: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the losses of those clients that also send that of one more model, without outliers."""
    clients = [client for client in context.participants if client.key in losses]
    replies = context.ask_losses(clients, model, all_samples=True)
    context.require(replies, "loss")
    rows = np.stack([np.append(losses[key], reply.losses) for key, reply in replies.ok])
    replies = without_outliers(replies, context, rows)
    return {key: np.append(losses[key], reply.losses) for key, reply in replies.ok}
