"""FLUX: the messages that it alone sends."""

DESCRIPTOR = "florets.strategies.flux.client:descriptor"
