"""Checkpoints, and going on from them."""
