"""FedSoft: the messages that it alone sends."""

TRAIN_ANCHORED = "florets.strategies.fedsoft.client:train_anchored"
CLOSEST = "florets.strategies.fedsoft.client:closest"
