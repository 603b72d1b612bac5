"""`train.moment_descent`: an anchor's own step."""

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.handlers.moments import local_moments
from florets.client_app.messages import Number, reply, reported
from florets.client_app.session import session
from florets.task.layers import untrained_entries
from florets.task.statistics.anchor_step import StepSettings, anchor_step
from florets.task.training.losses import mean_loss
from florets.task.wire import Layout, kinds


def moment_descent(client: Client) -> RecordDict:
    """Move this anchor's estimate one step inside its subspace.

    Source: mixed regression, Phase 1, l. 11 to 15.
    """
    moments, received = local_moments(client), client.arrays()
    names = moments.module.state_dict().keys()
    if names != received.keys():
        raise ValueError(f"the anchor's model has the entries {sorted(received)}, this client's {sorted(names)}")
    # Flat vectors are in the order of the module's own entries, whatever order a record arrived in.
    layout = Layout.of({name: received[name] for name in names}, untrained_entries(moments.module))
    estimate = layout.flatten(received)
    basis = session.arrays(client.arrays(kinds.BASES))[kinds.BASIS]
    settings = StepSettings(
        client.number(kinds.STEP_ALPHA), client.number(kinds.STEP_BETA), client.number(kinds.STOP_BELOW, -1.0)
    )
    projected = moments.projected(estimate.astype(np.float32), basis)
    step, residual = anchor_step(projected, moments.pairing, settings)
    moments.module.load_state_dict(client.states()[0])
    loss = mean_loss(moments.module, moments.x, moments.y, moments.loss)
    numbers: dict[str, Number] = {
        kinds.TRAIN_LOSS: reported(loss),
        kinds.NUM_EXAMPLES: len(moments.x),
        kinds.RESIDUAL: residual,
    }
    # Buffers have no moments, but a basis can lean on them: all of it where the moments span too little.
    moved = layout.arrays(estimate + np.where(layout.trained, basis.astype(np.float64) @ step, 0.0))
    return reply(ArrayRecord(moved), numbers)
