"""Seeded generators: every draw of a run is named by (seed, round, purpose, client)."""

import hashlib
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for. Values are part of a run's identity: append, never renumber."""

    DATA = 1
    PARTITION = 2
    INITIAL_MODEL = 3
    PARTICIPATION = 4
    FIRST_ROUND = 5
    CLUSTERING = 6
    CHOOSE_K = 7
    LOCAL_TRAINING = 8
    GRADIENT_BATCH = 9
    PROFILE_COORDINATES = 10
    ANCHORS = 15
    SUBSPACE_CLIENTS = 16
    SUBSPACE = 17
    ESTIMATE = 23
    LOCAL_KMEANS = 24
    HELD_OUT = 30
    LOSS_BATCH = 31
    FINE_TUNING = 40
    VALIDATION = 41
    FOLDS = 50
    FOLD_SKETCH = 51
    FOLD_TEST = 52
    FEATURE_PROJECTION = 60
    DRIFT = 70
    ADAPTATION = 80
    LOCAL_AGGREGATION = 81
    HEAD_TRAINING = 82
    EMBEDDING = 100


def generator(seed: int, server_round: int, purpose: Purpose | str, client: int = 0) -> np.random.Generator:
    """Return the generator of one draw; `server_round` and `client` are 0 where none is meant."""
    number = _hashed(purpose) if isinstance(purpose, str) else int(purpose)
    return np.random.default_rng([seed, server_round, number, client])


def client_number(client_key: str) -> int:
    """Return the integer that stands for a client in `generator`: its partition id, else of its key's SHA-256."""
    # Longer texts of digits are no partition ids, and Python refuses to read very long ones.
    if client_key.isascii() and client_key.isdecimal() and len(client_key) <= 18:
        return int(client_key)
    return _hashed(client_key)


def _hashed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
