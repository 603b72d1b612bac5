"""Frames, tables, figures and statistics of results."""
