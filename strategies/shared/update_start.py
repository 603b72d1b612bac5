"""Round 1 from the updates of one model: the start `first_round=update` of CLoVE, IFCA and CFL-GP."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from florets.strategies.base.algorithm import Algorithm
from florets.strategies.base.averaging import ModelAveraging
from florets.strategies.base.context import Plan, Round
from florets.strategies.base.report import Detail
from florets.strategies.base.state import State
from florets.strategies.core import FloatArray
from florets.strategies.core.update_groups import update_groups
from florets.strategies.shared.fold_round import FoldRound
from florets.strategies.shared.group_models import group_models
from florets.task.wire.replies import Update

Settle = Callable[[Mapping[str, int]], None]


@dataclass
class StartState(State):
    """State of an algorithm that may start from updates.

    Attributes
    ----------
    found
        What round 1 tells of the groups that it looked for.
    """

    found: dict[str, Detail] = field(default_factory=dict)


S = TypeVar("S", bound=StartState)


def starts_from_updates(algorithm: Algorithm[Any, Any], context: Round) -> bool:
    """Return whether this is a round 1 that starts from updates."""
    return context.server_round == 1 and algorithm.first_round == "update"


def start_from_updates(algorithm: Algorithm[Any, S], context: Round, settle: Settle) -> Plan[Update]:
    """Plan round 1: all participants train model 0, and each group of them that is found starts from its mean.

    One model is sent, where a start by losses sends K, and groups differ as their data do, not as K random models do.
    K groups are cut from Ward's tree of the updates. With k=auto choose_k=folds clients also send what they learn on
    folds of their data, which says how many groups there are (`strategies.discovery`); one, if none.

    Parameters
    ----------
    settle
        Called with the clients' groups.
    """
    if algorithm.k == "auto":
        return _by_folds(algorithm, context, settle)
    count = context.models.count if algorithm.k is None else algorithm.k
    plan = context.train_assigned({client.key: 0 for client in context.participants})

    def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
        start = context.models.bank[0] if isinstance(context.averaging, ModelAveraging) else 0.0
        trained = context.models.layout.trained
        changes = np.stack([(update.vector - start)[trained] for _, update in updates])
        context.note_vectors("updates", [key for key, _ in updates], changes)
        labels = update_groups(changes, count)
        groups = {key: int(group) for (key, _), group in zip(updates, labels, strict=True)}
        algorithm.assignment.update(groups)
        settle(groups)
        return group_models(context, updates, groups, count)

    return replace(plan, combine=combine)


def _by_folds(algorithm: Algorithm[Any, S], context: Round, settle: Settle) -> Plan[Update]:
    folds = FoldRound.begin(context)
    requests, read = folds.train(context)

    def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
        folds.take(updates)
        with context.meter.part("discover"):
            found = folds.decide(None, context)
        algorithm.state.found = found.evidence.details()
        algorithm.assignment.update(found.assignment)
        settle(found.assignment)
        return group_models(context, updates, found.assignment, found.count)

    return Plan(requests, read, combine)
