"""`train.probe`: a client's update of its own model, and its compressed gradient on another one."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from florets.client_app.incoming import arrays_of, config_of, number
from florets.client_app.local_work import changes, sends_gradient, session, update, work
from florets.task.randomness import Purpose, generator
from florets.task.wire import Layout, kinds
from florets.task.wire.compression import coordinates


def train_probe(message: Message, context: Context) -> Message:
    """Do as `train` with the own model; do the same with the probe, and return what it would change there.

    Both work on the same minibatch, or train in the same order: the draws are named by round, purpose and client.

    Source: CFL-GP Alg. 1, l. 3 and 7; Alg. 4, l. 4 and 8.
    """
    config = config_of(message)
    arrays, metrics = update(session.states(arrays_of(message))[0], config, context)
    profile = ArrayRecord({kinds.PROFILE: Array(_on_probe(arrays_of(message, kinds.PROBE), config, context))})
    return Message(
        RecordDict({kinds.ARRAYS: arrays, kinds.METRICS: metrics, kinds.PROFILE: profile}), reply_to=message
    )


def _on_probe(probe: ArrayRecord, config: ConfigRecord, context: Context) -> NDArray[np.float32]:
    """Return the entries that are asked for of the gradient on the probe, or of its change in local training."""
    state = session.states(probe)[0]
    changed, _ = work(state, config, context)
    if not sends_gradient(config):
        changed = changes(changed, state)
    layers = config.get(kinds.PROFILE_LAYERS, [])
    rng = generator(int(number(config, kinds.PROFILE_SEED, 0)), 0, Purpose.PROFILE_COORDINATES)
    places = coordinates(
        Layout.of(probe),
        [str(name) for name in layers] if isinstance(layers, list) else [],
        number(config, kinds.PROFILE_RATIO, 1.0),
        rng,
    )
    return np.concatenate([np.ravel(changed[name]).astype(np.float32) for name in probe])[places]
