"""Models: importing this package registers the built-in ones."""

from florets.task.models.autoencoder import autoencoder
from florets.task.models.cifar_cnn import cifar_cnn
from florets.task.models.cnn import cnn
from florets.task.models.conv_autoencoder import conv_autoencoder
from florets.task.models.csi_autoencoder import csi_autoencoder
from florets.task.models.linear import linear
from florets.task.models.mlp import mlp
from florets.task.models.resnet import resnet18
from florets.task.models.text_cnn import text_cnn

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
