"""First rounds of CLoVE, IFCA and CFL-GP: random models, or groups of updates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from florets.strategies.base.round import Plan, Round
from florets.strategies.base.models import ModelAveraging, Models, Updates
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import Algorithm
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.folds import update_groups
from florets.strategies.shared.fold_round import FoldRound
from florets.task.wire.replies import Update


def draw_models(clients: Sequence[Client], num_models: int, rng: np.random.Generator) -> dict[str, int]:
    """Give every client a random model, and every model a client as far as there are enough of them.

    Deviation: in CLoVE's published code a model can still end up without a client.
    """
    drawn = random_assignment(len(clients), num_models, rng)
    return {client.key: int(model) for client, model in zip(clients, drawn, strict=True)}


def random_assignment(num_clients: int, num_models: int, rng: np.random.Generator) -> IntArray:
    """Draw a model (M,) for each client such that no model is left out needlessly.

    With M >= K a uniform draw, after which each model without a client takes one at random from those models that
    have more than one. With M < K all clients have different models.

    Source: CLoVE, random first round.
    Deviation: the published code overwrites the draw of any client, which can empty another model.
    """
    if num_models < 1:
        raise ValueError(f"num_models is {num_models}: it must be at least 1.")
    if num_clients < num_models:
        return rng.permutation(num_models)[:num_clients].astype(np.int64)
    assignment = rng.integers(num_models, size=num_clients, dtype=np.int64)
    sizes = np.bincount(assignment, minlength=num_models)
    for model in np.flatnonzero(sizes == 0):
        giver = rng.choice(np.flatnonzero(sizes[assignment] > 1))
        sizes[assignment[giver]] -= 1
        sizes[model] += 1
        assignment[giver] = model
    return assignment


def changes_of(context: Round, updates: Sequence[tuple[str, Update]]) -> FloatArray:
    """Return what training of model 0 changed in the trainable parameters, (P, R'); of gradients themselves."""
    start = context.models.bank[0] if isinstance(context.averaging, ModelAveraging) else 0.0
    return np.stack([(update.vector - start)[context.models.layout.trained] for _, update in updates])


def group_models(
    context: Round, updates: Sequence[tuple[str, Update]], groups: Mapping[str, int], count: int
) -> FloatArray:
    """Return the next bank (count, R), averaged as the round averages, from updates of model 0.

    A client without a group counts for none; a group of which no member sent an update gets the mean of all updates.
    """

    def averaged(chosen: Sequence[tuple[str, Update]], models: IntArray, rows: int) -> FloatArray:
        start = context.models.replaced(np.repeat(context.models.bank[:1], rows, axis=0))
        return context.averaging.next_bank(start, Updates(chosen), models, Updates(chosen).examples)

    members = [(key, update) for key, update in updates if key in groups]
    if members and context.privacy is not None:
        # Updates are released once; a group without members has a mean of noise alone.
        return averaged(members, np.array([groups[key] for key, _ in members], dtype=np.int64), count)
    everybody = averaged(updates, np.zeros(len(updates), dtype=np.int64), 1)
    if not members:
        return np.repeat(everybody, count, axis=0)
    labels = np.array([groups[key] for key, _ in members], dtype=np.int64)
    bank = averaged(members, labels, count)
    bank[np.setdiff1d(np.arange(count), labels)] = everybody[0]
    return bank


Settle = Callable[[Mapping[str, int]], None]


def starts_from_updates(algorithm: Algorithm[Any, Any], context: Round) -> bool:
    """Return whether this is a round 1 that starts from updates."""
    return context.server_round == 1 and algorithm.first_round == "update"


def start_from_updates(algorithm: Algorithm[Any, Any], context: Round, settle: Settle) -> Plan[Update]:
    """Plan round 1: all participants train model 0, and each group of them that is found starts from its mean.

    One model is sent, where a start by losses sends K, and groups differ as their data do, not as K random models do.
    K groups are cut from Ward's tree of the updates. With k=auto choose_k=folds clients also send what they learn on
    folds of their data, which says how many groups there are (`strategies.discovery`); one, if none. With noise these
    rows, in noised sums, make the K groups.

    `settle` is called with the clients' groups.
    """
    if algorithm.k == "auto" or context.privacy is not None:
        return _by_folds(algorithm, context, settle)
    count = context.models.count if algorithm.k is None else algorithm.k
    plan = context.train_assigned({client.key: 0 for client in context.participants})

    def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
        changes = changes_of(context, updates)
        context.note_vectors("updates", [key for key, _ in updates], changes)
        labels = update_groups(changes, count)
        groups = {key: int(group) for (key, _), group in zip(updates, labels, strict=True)}
        algorithm.assignment.update(groups)
        settle(groups)
        return group_models(context, updates, groups, count)

    return replace(plan, combine=combine)


def _by_folds(algorithm: Algorithm[Any, Any], context: Round, settle: Settle) -> Plan[Update]:
    guard, k = context.privacy, None if algorithm.k == "auto" else context.models.count
    folds = FoldRound.begin(context) if guard is None else FoldRound.begin_noised(context)
    requests, read = folds.train(context)

    def combine(updates: Sequence[tuple[str, Update]]) -> FloatArray:
        folds.take(updates)
        with context.meter.part("discover"):
            found = folds.decide(k, context)
        algorithm.state.details |= found.evidence.details()
        algorithm.assignment.update(found.assignment)
        settle(found.assignment)
        return group_models(context, updates, found.assignment, found.count)

    return Plan(requests, read, combine)
