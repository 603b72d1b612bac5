"""Per-FedAvg: the messages that it alone sends."""

TRAIN_ADAPTED = "florets.strategies.per_fedavg.client:train_adapted"
