"""Models: importing this package registers the built-in ones."""

from florets.task.models.autoencoders import autoencoder, conv_autoencoder, csi_autoencoder
from florets.task.models.cnn import cifar_cnn, cnn, resnet18, text_cnn
from florets.task.models.mlp import linear, mlp

__all__ = [
    "autoencoder",
    "cifar_cnn",
    "cnn",
    "conv_autoencoder",
    "csi_autoencoder",
    "linear",
    "mlp",
    "resnet18",
    "text_cnn",
]
