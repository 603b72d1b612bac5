"""Diagnostics: warnings about the result of a run in which nothing failed."""

from collections import Counter
from collections.abc import Sequence

from florets.conf.schema import Config
from florets.server_app.console import counted
from florets.server_app.results.summary import RoundLine
from florets.strategies.base.report import STABLE_FROM

_WORST_CROSS_ENTROPY = 1000.0
"""No benign training ends near it: guessing has the logarithm of the number of classes."""
_WORST_GROWTH = 1000.0
_SEVERAL = 3
"""Rounds in which a client is rejected before it is told of: fewer are an accident."""
_MOST_KEYS = 10
_ROUNDS = 5
"""Rounds in which a training loss should fall."""
_MARGIN = 0.05
"""Of the way from guessing to perfection, or of the first training loss: what counts as nothing learned."""


def too_few_models(config: Config) -> str:
    """Return what is to be said of a K below the number of true clusters; nothing where it is not, or unused."""
    k, true = config.k, config.task.num_clusters
    if config.strategy.settings.one_model or k == "auto" or not 1 < k < true:
        return ""
    return (
        f"k={k} models for task.num_clusters={true} true clusters: some of them must share a model, and the ARI "
        f"cannot reach 1; use k={true}, unless that is meant"
    )


def refusals(lines: Sequence[RoundLine]) -> list[str]:
    """Return what is to be said of clients that were rejected as outliers in several rounds."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in lines:
        counts.update(line.get("rejected", {}).items())
    alike: dict[tuple[int, str], list[str]] = {}
    for (key, reason), count in sorted(counts.items()):
        if count >= _SEVERAL:
            alike.setdefault((count, reason), []).append(key)
    said = []
    for (count, reason), keys in alike.items():
        more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
        said.append(
            f"client {', '.join(keys[:_MOST_KEYS])}{more}, in {count} of {counted(len(lines), 'round')}: {reason}"
        )
    return said


def chance_level(loss: str, num_outputs: int, lines: Sequence[RoundLine]) -> str:
    """Return what is to be said of a clustering that was frozen while the models have learned nothing; else nothing.

    The loss vectors of such models are noise, and equal noise in every round gives equal clusters: a clustering is
    stable then without a meaning. No truth is needed to see it.

    Parameters
    ----------
    loss
        The task's, `task.loss`.
    num_outputs
        Number of classes, where the task has any.
    lines
        Of all rounds so far.
    """
    frozen = next((line for line in lines if line["stable"] or STABLE_FROM in line["details"]), None)
    evaluated = [line for line in lines if line["accuracy"] is not None]
    if frozen is None:
        return ""
    if loss == "cross_entropy":
        chance = 1 / num_outputs
        if not evaluated or evaluated[-1]["accuracy"] > chance + _MARGIN * (1 - chance):
            return ""
        accuracy = evaluated[-1]["accuracy"]
        found = f"test accuracy is {accuracy:.1%}, and guessing among {num_outputs} classes {chance:.1%}"
    else:
        # Rounds that trained fewer clients, or others, say nothing of how the loss has moved.
        end = lines[-1]
        start = next(line for line in lines if line["cluster_sizes"] == end["cluster_sizes"])
        first, last = start["train_loss"], end["train_loss"]
        if end["round"] - start["round"] < _ROUNDS or not first or last is None or last < (1 - _MARGIN) * first:
            return ""
        found = (
            f"the training loss is {last:.4g} in round {end['round']}, and was {first:.4g} in round {start['round']}"
        )
    return (
        f"the clustering is frozen, but the models have learned next to nothing ({found}), so that their losses may "
        "tell clients apart by noise alone; change train.learning_rate or train.local_epochs, and look at the data"
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
