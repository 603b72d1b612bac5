"""What a message holds: its settings, its arrays, and the seeded draws that it asks for."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from florets.client_app.session import client_key
from florets.task.randomness import Purpose, client_number, generator
from florets.task.training import TrainSettings
from florets.task.wire import kinds


def config_of(message: Message) -> ConfigRecord:
    """Return the settings of a message.

    Raises
    ------
    ValueError
        If it has none.
    """
    config = message.content.get(kinds.CONFIG)
    if not isinstance(config, ConfigRecord):
        raise ValueError(f"the message has no {kinds.CONFIG!r}")
    return config


def arrays_of(message: Message, record: str = kinds.ARRAYS) -> ArrayRecord:
    """Return the arrays of a message.

    Raises
    ------
    ValueError
        If it has none under this name.
    """
    arrays = message.content.get(record)
    if not isinstance(arrays, ArrayRecord):
        raise ValueError(f"the message has no {record!r}")
    return arrays


def number(config: ConfigRecord, key: str, default: float | None = None) -> float:
    """Return a number among the settings.

    Raises
    ------
    ValueError
        If it is no number, or missing without a default.
    """
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the message's config has {key}={value!r}, not a number")
    return value


def train_settings(config: ConfigRecord) -> TrainSettings:
    """Return the settings of local training."""
    return TrainSettings(
        learning_rate=number(config, kinds.LEARNING_RATE),
        local_epochs=int(number(config, kinds.LOCAL_EPOCHS)),
        batch_size=int(number(config, kinds.BATCH_SIZE)),
        optimizer="sgd" if config.get(kinds.OPTIMIZER) == "sgd" else "adam",
        momentum=number(config, kinds.MOMENTUM, 0.0),
        weight_decay=number(config, kinds.WEIGHT_DECAY, 0.0),
        proximal_mu=number(config, kinds.PROXIMAL_MU, 0.0),
    )


def client_generator(config: ConfigRecord, context: Context, purpose: Purpose) -> np.random.Generator:
    """Return the generator of one of this client's draws in this round."""
    # The server knows the client's registered name, the node may not; other strategies than ours send no number.
    client = int(number(config, kinds.CLIENT_NUMBER, client_number(client_key(context))))
    seed, server_round = int(number(config, kinds.SEED, 0)), int(number(config, kinds.SERVER_ROUND, 0))
    return generator(seed, server_round, purpose, client)
