"""Diagnostics: warnings about the result of a run in which nothing failed."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from florets.conf.schema import Config
from florets.reports.console import counted
from florets.reports.summary import RoundLine, last
from florets.strategies.base.report import STABLE_FROM, named
from florets.task.tested import Evaluation

_WORST_CROSS_ENTROPY = 1000.0
"""No benign training ends near it: guessing has the logarithm of the number of classes."""
_WORST_GROWTH = 1000.0
_WORST_ERROR = 3.0
"""RMSE of a regression in units of what each client's own mean would have. One model for clients of different levels
may well be at 2."""
_ABSURD_ERROR = 100.0
"""The same of a single client, beyond all noise."""
_SEVERAL = 3
"""Rounds in which a client is rejected before it is reported: fewer are an accident."""
_MARGIN = 0.05
"""Of the way from guessing to perfection: what counts as nothing learned."""


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
        counts.update(line["rejected"].items())
    alike: dict[tuple[int, str], list[str]] = {}
    for (key, reason), count in sorted(counts.items()):
        if count >= _SEVERAL:
            alike.setdefault((count, reason), []).append(key)
    said = []
    for (count, reason), keys in alike.items():
        said.append(f"client {named(keys)}, in {count} of {counted(len(lines), 'round')}: {reason}")
    return said


def chance_level(num_outputs: int, lines: Sequence[RoundLine]) -> str:
    """Return what is to be said of a clustering that was frozen while the models' accuracy is that of guessing.

    The loss vectors of such models are noise, and equal noise in every round gives equal clusters: a clustering is
    stable then without a meaning. No truth is needed to see it.
    """
    is_frozen = any(line["stable"] or STABLE_FROM in line["details"] for line in lines)
    accuracy, chance = last(lines, "accuracy"), 1 / num_outputs
    if not is_frozen or accuracy is None or accuracy > chance + _MARGIN * (1 - chance):
        return ""
    return (
        f"the clustering is frozen, but the models have learned next to nothing (test accuracy is {accuracy:.1%}, "
        f"and guessing among {num_outputs} classes {chance:.1%}), so that their losses may tell clients apart by "
        "noise alone; change train.learning_rate or train.local_epochs, and look at the data"
    )


def divergence(loss: str, lines: Sequence[RoundLine]) -> str:
    """Return what is to be said where the models of the last evaluated round are worse than none; else nothing."""
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


def worse_than_constant(evaluations: Mapping[str, Evaluation]) -> str:
    """Return what is to be said of a regression whose errors are far larger than a constant's; else nothing.

    The constant is each client's own mean. Its squared error follows from the client's R2 and RMSE, and is taken for
    all clients together, per degree of freedom: the R2 of a few test records is mostly noise. A model so far off that
    noise is out of the question is named on its own.
    """
    known = {
        key: (one.num_examples, one.scores["r2"], one.scores["rmse"])
        for key, one in evaluations.items()
        if one.scores.get("r2", 1.0) < 1 and math.isfinite(one.scores.get("rmse", math.nan))
    }
    if not known:
        return ""
    far = [key for key, (_, r2, _) in known.items() if 1 - r2 > _ABSURD_ERROR**2]
    if far and 2 * len(far) <= len(known):
        return (
            f"the models have diverged at {len(far)} of {counted(len(known), 'client')} ({named(far)}): the RMSE "
            f"on their test records is over {_ABSURD_ERROR:g} times that of their mean; lower train.learning_rate"
        )
    below = sum(r2 < 0 for _, r2, _ in known.values())
    if 2 * below <= len(known):
        return ""
    squares = math.fsum(n * rmse**2 for n, _, rmse in known.values())
    spread = math.fsum(n * rmse**2 / (1 - r2) for n, r2, rmse in known.values())
    records, freedom = sum(n for n, _, _ in known.values()), sum(n - 1 for n, _, _ in known.values())
    if not spread or not freedom:
        return ""
    times = math.sqrt(squares / records / (spread / freedom))
    if times <= _WORST_ERROR:
        return ""
    return (
        f"the models are worse than a constant: the RMSE on test records is {times:.3g} times that of each client's "
        f"mean, and R2 is below 0 at {below} of {counted(len(known), 'client')}. The clients need levels or models "
        "of their own (florets advise), or training learned too little (more rounds, targets of a smaller scale) or "
        "has diverged (lower train.learning_rate, for example to a third)"
    )
