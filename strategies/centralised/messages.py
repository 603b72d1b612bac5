"""Centralised: the messages that it alone sends."""

TRAIN_POOLED = "florets.strategies.centralised.client:train_pooled"
