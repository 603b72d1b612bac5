"""Handlers of phase 1 of mixed regression: terms or factors of the anchors' subspaces, and an anchor's own step."""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from florets.client_app.incoming import arrays_of, config_of, number
from florets.client_app.local_work import packed, reported, session
from florets.task.anchor_step import StepSettings, anchor_step
from florets.task.losses import mean_loss
from florets.task.moments import LocalMoments
from florets.task.wire import Layout, kinds


def subspace(message: Message, context: Context) -> Message:
    """Return this client's product Y Q, or Y^T Q, for every anchor.

    Source: mixed regression, Alg. 3, l. 5 and 8.
    """
    config = config_of(message)
    moments, (left, right) = _moments(config, context), _estimates(message)
    bases = session.arrays(arrays_of(message, kinds.BASES))[kinds.BASES]
    terms = moments.term(left, right, bases, transposed=bool(number(config, kinds.TRANSPOSED, 0)))
    return _reply(message, packed({kinds.TERMS: terms}), {kinds.NUM_EXAMPLES: len(moments.x)})


def factors(message: Message, context: Context) -> Message:
    """Return the factors of this client's moment matrices: with all pairs, every example's gradient at every anchor.

    Source: mixed regression, Sec. V (direct singular value decomposition).
    """
    moments, (left, right) = _moments(config_of(message), context), _estimates(message)
    one, two = moments.factors(left, right)
    arrays = {kinds.LEFT: one} if two is None else {kinds.LEFT: one, kinds.RIGHT: two}
    return _reply(message, packed(arrays), {kinds.NUM_EXAMPLES: len(moments.x)})


def moment_descent(message: Message, context: Context) -> Message:
    """Move this anchor's estimate one step inside its subspace.

    Source: mixed regression, Phase 1, l. 11 to 15.
    """
    config = config_of(message)
    moments, received = _moments(config, context), arrays_of(message)
    names = moments.module.state_dict().keys()
    if names != received.keys():
        raise ValueError(f"the anchor's model has the entries {sorted(received)}, this client's {sorted(names)}")
    # Flat vectors are in the order of the module's own entries, whatever order a record arrived in.
    layout = Layout.of({name: received[name] for name in names})
    estimate = layout.flatten(received)
    basis = session.arrays(arrays_of(message, kinds.BASES))[kinds.BASIS]
    settings = StepSettings(
        number(config, kinds.STEP_ALPHA), number(config, kinds.STEP_BETA), number(config, kinds.STOP_BELOW, -1.0)
    )
    projected = moments.projected(estimate.astype(np.float32), basis)
    step, residual = anchor_step(projected, moments.pairing, settings)
    moments.module.load_state_dict(session.states(received)[0])
    loss = mean_loss(moments.module, moments.x, moments.y, moments.loss)
    numbers = {kinds.TRAIN_LOSS: reported(loss), kinds.NUM_EXAMPLES: len(moments.x), kinds.RESIDUAL: residual}
    # Buffers have no moments, but a basis can lean on them: all of it where the moments span too little.
    parameters = {name for name, p in moments.module.named_parameters(remove_duplicate=False) if p.requires_grad}
    trained = np.concatenate([np.full(entry.size, entry.name in parameters) for entry in layout.entries])
    moved = layout.arrays(estimate + np.where(trained, basis.astype(np.float64) @ step, 0.0))
    return _reply(message, ArrayRecord(moved), numbers)


def _moments(config: ConfigRecord, context: Context) -> LocalMoments:
    task, data = session.task(config, context), session.client(config, context)
    pairing: Any = config.get(kinds.PAIRING)
    return LocalMoments(session.module(config, context), data.x_train, data.y_train, task.spec.loss, pairing)


def _estimates(message: Message) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    arrays = session.arrays(arrays_of(message, kinds.ESTIMATES))
    return arrays[kinds.LEFT], arrays.get(kinds.RIGHT)


def _reply(message: Message, arrays: ArrayRecord, numbers: dict[str, float]) -> Message:
    content = RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: MetricRecord(dict(numbers))})
    return Message(content, reply_to=message)
