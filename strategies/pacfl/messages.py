"""PACFL: the messages that it alone sends."""

PRINCIPAL_VECTORS = "florets.strategies.pacfl.client:principal_vectors"
