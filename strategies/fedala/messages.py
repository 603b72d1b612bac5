"""FedALA: the messages that it alone sends."""

TRAIN_MIXED = "florets.strategies.fedala.client:train_mixed"
