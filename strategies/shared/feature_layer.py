"""The linear layer whose inputs are a model's features, as a strategy's settings name it."""

from collections.abc import Sequence

from florets.strategies.base.models import Models
from florets.strategies.shared.estimates import last_layer


def head_name(models: Models, head_layers: Sequence[str]) -> str:
    """Return the name of the layer: the one that is given, else the last."""
    return (head_layers or last_layer(models))[0]


def feature_width(models: Models, head_layers: Sequence[str]) -> int:
    """Return the size D of a feature.

    Raises
    ------
    ValueError
        If there is no such layer, or it is not linear.
    """
    name = head_name(models, head_layers)
    for entry in models.layout.entries:
        if entry.name == f"{name}.weight" and len(entry.shape) == 2:
            return entry.shape[1]
    names = ", ".join(entry.name for entry in models.layout.entries)
    raise ValueError(
        f"layer {name!r} has no matrix {name}.weight, whose columns say how large a feature is; name a linear layer "
        f"as strategy.head_layers; the model's entries are {names}."
    )
