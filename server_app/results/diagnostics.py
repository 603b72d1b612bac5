"""Diagnostics: warnings about the result of a run in which nothing failed."""

from collections.abc import Sequence

from florets.conf.schema import Config
from florets.server_app.results.summary import RoundLine

_WORST_CROSS_ENTROPY = 1000.0
"""No honest training ends near it: guessing has the logarithm of the number of classes."""
_WORST_GROWTH = 1000.0


def too_few_models(config: Config) -> str:
    """Return what is to be said of a K below the number of true clusters; nothing where it is not, or unused."""
    k, true = config.k, config.task.num_clusters
    if config.strategy.settings.one_model or k == "auto" or not 1 < k < true:
        return ""
    return (
        f"k={k} models for task.num_clusters={true} true clusters: some of them must share a model, and the ARI "
        f"cannot reach 1; use k={true}, unless that is meant"
    )


def divergence(loss: str, lines: Sequence[RoundLine]) -> str:
    """Return what is to be said where the models of the last evaluated round are worse than none; else nothing.

    Parameters
    ----------
    loss
        The task's, `task.loss`.
    lines
        Of all rounds.
    """
    evaluated = [line for line in lines if line["evaluated"]]
    if not evaluated:
        return ""
    end = evaluated[-1]
    if end["diverged"] == end["evaluated"]:
        found = "no client's test loss is finite at the end"
    elif end["loss"] is None:
        # Of some clients alone: the rounds' own warnings count them.
        return ""
    elif loss == "cross_entropy" and end["loss"] > _WORST_CROSS_ENTROPY:
        found = f"the test loss at the end is {end['loss']:.3g}, far worse than guessing"
    elif (first := evaluated[0]["loss"]) and end["loss"] > _WORST_GROWTH * first:
        found = f"the test loss at the end, {end['loss']:.3g}, is over {_WORST_GROWTH:g} times the first one"
    else:
        return ""
    return f"the models have diverged: {found}; lower train.learning_rate"
