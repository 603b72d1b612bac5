"""Models: importing this package registers the built-in ones."""

from florets.task.models.autoencoder import autoencoder
from florets.task.models.cnn import cnn
from florets.task.models.linear import linear
from florets.task.models.mlp import mlp

__all__ = ["autoencoder", "cnn", "linear", "mlp"]
