"""`train`, `train.select` and `evaluate.losses`: local training of one model, and losses of several."""

from flwr.app import RecordDict

from florets.client_app.client import Client
from florets.client_app.session import session
from florets.client_app.training import model_losses, reported, update
from florets.task.training.losses import in_parts, recorded
from florets.task.wire import is_stable, kinds
from florets.task.wire.codec import pack
from florets.task.wire.replies import Losses, SelectedUpdate, TracedUpdate, Update


def train(client: Client) -> RecordDict:
    """Train the model that came, or the kept one that is named, and return it or its gradient.

    Asked to, this client also says whether it is stable, or what its losses were from step to step.

    Source: CLoVE Alg. 1, l. 19 and 21; stability: section 3, "Checking for cluster stability".
    """
    if kinds.MODEL_INDEX in client.config:
        state = session.states(session.kept(client.config))[int(client.number(kinds.MODEL_INDEX))]
    else:
        state = client.states()[0]
    parts = int(client.number(kinds.STEP_LOSSES, 0))
    if parts:
        with recorded() as losses:
            own = update(client, state)
        return pack(TracedUpdate, **own, step_losses=reported(in_parts(losses, parts)))
    stable = None
    if rounds := int(client.number(kinds.STABILITY_ROUNDS, 0)):
        history = client.config.get(kinds.HISTORY, [])
        stable = is_stable(history if isinstance(history, list) else [], rounds)
    return pack(Update, **update(client, state), stable=stable)


def train_select(client: Client) -> RecordDict:
    """Choose the model with the lowest loss, see `model_losses`, then do as `train`.

    Source: IFCA Alg. 1, l. 7 and 8.
    """
    losses = model_losses(client)
    chosen = int(losses.argmin())
    return pack(SelectedUpdate, **update(client, client.states()[chosen]), model=chosen, losses=losses)


def losses(client: Client) -> RecordDict:
    """Return the mean loss of each model, see `model_losses`, and whether this process has kept the models.

    Source: CLoVE Alg. 1, l. 7 and 8.
    """
    return pack(
        Losses,
        losses=model_losses(client),
        num_examples=client.num_examples,
        kept=session.keep(client.config, client.arrays(), client.context),
    )
