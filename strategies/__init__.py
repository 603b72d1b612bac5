"""Flower strategies, one file per algorithm."""
