"""Flower's own processes: SuperLink, `flwr run`, the end of a run."""
