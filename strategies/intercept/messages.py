"""Random intercepts: the messages that it alone sends."""

INTERCEPT = "florets.strategies.intercept.client:intercept"
