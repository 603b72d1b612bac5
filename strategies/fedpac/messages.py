"""FedPAC: the messages that it alone sends."""

TRAIN_SPLIT = "florets.strategies.fedpac.client:train_split"
