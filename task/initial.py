"""Initial models, as the server sends them out before the first round."""

from collections.abc import Callable
from typing import Any, Literal

from numpy.typing import NDArray
from torch.nn import Module

from florets.task.randomness import Purpose, generator
from florets.task.training.modules import torch_random


def initial_models(
    build: Callable[[], Module], num_models: int, how: Literal["different", "same"], seed: int
) -> list[dict[str, NDArray[Any]]]:
    """Build K models and return their state dicts.

    Parameters
    ----------
    build
        Gives a freshly initialised module, e.g. `Task.build_model`.
    num_models
        K.
    how
        ``different``: each model has a draw of its own, which does not depend on K.
        ``same``: all are copies of model 0.
    seed
        Seed of the run.

    Returns
    -------
    list of dict
        K state dicts: name -> array, floating and integer entries (buffers) alike.

    Raises
    ------
    ValueError
        If `how` is another word or K is not positive.

    Source: CLoVE Alg. 1, l. 1.
    """
    if how not in ("different", "same"):
        raise ValueError(f"init={how!r} must be 'different' or 'same'.")
    if num_models < 1:
        raise ValueError(f"the number of models is {num_models}, but at least 1 is needed.")
    states = []
    for k in range(num_models):
        with torch_random(generator(seed, 0, Purpose.INITIAL_MODEL, k if how == "different" else 0)):
            module = build()
        states.append({name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()})
    return states
