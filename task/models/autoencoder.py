"""A fully connected autoencoder for images with pixels in [0, 1]."""

from math import prod

from torch import nn

from florets.task.layers import with_head
from florets.task.registry import register_model


@register_model("autoencoder")
def autoencoder(input_shape: tuple[int, ...], num_outputs: int, bottleneck: int | None = None) -> nn.Module:
    """Compress d pixels to a quarter and back; returns reconstructions (n, d).

    Parameters
    ----------
    input_shape
        Shape of one input, d entries in all.
    num_outputs
        Not used: the outputs are the inputs' d entries.
    bottleneck
        m, the width of the code; d // 4 by default. Layers are d -> 4m -> 2m -> m -> 2m -> 4m -> d, on MNIST
        784-784-392-196-392-784-784 with 2,000,964 parameters.

    Raises
    ------
    ValueError
        If the bottleneck is not positive.

    Notes
    -----
    ReLU between the layers, none at the code, and a sigmoid at the end.

    Source: CLoVE, App. C (unsupervised experiments).
    """
    d = prod(input_shape)
    m = d // 4 if bottleneck is None else bottleneck
    if m < 1:
        raise ValueError(f"task.model_options.bottleneck={m} must be at least 1.")
    layers = nn.Sequential(
        nn.Flatten(),
        nn.Linear(d, 4 * m),
        nn.ReLU(),
        nn.Linear(4 * m, 2 * m),
        nn.ReLU(),
        nn.Linear(2 * m, m),
        nn.Linear(m, 2 * m),
        nn.ReLU(),
        nn.Linear(2 * m, 4 * m),
        nn.ReLU(),
        nn.Linear(4 * m, d),
        nn.Sigmoid(),
    )
    return with_head(layers, "10")
