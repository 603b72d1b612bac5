"""FlexCFL: the messages that it alone sends."""

LABELS = "florets.strategies.flexcfl.client:labels"
