"""CFL-GP's clients: an update of a client's own model, and its compressed change on another one."""

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from florets.client_app.client import Client
from florets.client_app.training import changes, sends_gradient, update, work
from florets.strategies.cfl_gp.messages import ProbeUpdate, coordinates
from florets.task.randomness import Purpose, generator
from florets.task.wire import Layout, kinds
from florets.task.wire.codec import pack


def train_probe(client: Client) -> RecordDict:
    """Do as `train` with the own model; do the same with the probe, and return what it would change there.

    Both work on the same minibatch, or train in the same order: the draws are named by round, purpose and client.

    Source: CFL-GP Alg. 1, l. 3 and 7; Alg. 4, l. 4 and 8.
    """
    own = update(client, client.states()[0])
    return pack(ProbeUpdate, **own, profile=_on_probe(client))


def _on_probe(client: Client) -> NDArray[np.float32]:
    """Return the entries that are asked for of the gradient on the probe, or of its change in local training."""
    probe, state = client.arrays(kinds.PROBE), client.states(kinds.PROBE)[0]
    changed, _ = work(client, state)
    if not sends_gradient(client):
        changed = changes(changed, state)
    places = coordinates(
        Layout.of(probe, client.names(kinds.UNTRAINED)),
        client.names(kinds.PROFILE_LAYERS),
        client.number(kinds.PROFILE_RATIO, 1.0),
        generator(int(client.number(kinds.PROFILE_SEED, 0)), 0, Purpose.PROFILE_COORDINATES),
    )
    return np.concatenate([np.ravel(changed[name]).astype(np.float32) for name in probe])[places]
