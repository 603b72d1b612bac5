"""Sweeps: many runs of one command, and their common table."""
