"""Models: importing this package registers the built-in ones.

Images have the `input_shape` (channels, height, width). Autoencoders do not use `num_outputs`: their outputs are the
d entries of an input. Inputs and options that do not fit raise ValueError with the remedy.
"""

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
