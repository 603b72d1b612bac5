"""Centralised training: one model on all clients' data together."""
