"""Models: importing this package registers the built-in ones."""

from task.models.autoencoder import autoencoder
from task.models.cnn import cnn
from task.models.linear import linear
from task.models.mlp import mlp

__all__ = ["autoencoder", "cnn", "linear", "mlp"]
