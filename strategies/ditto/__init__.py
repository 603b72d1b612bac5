"""Ditto: a global model, and personal models that are held near it."""
