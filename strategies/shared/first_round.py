"""First assignments of a run: models drawn at random, or groups found by the updates of one model."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from florets.strategies.base.models import ModelAveraging, Updates
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round, Steps, opened
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.folds import update_groups
from florets.strategies.shared.fold_round import FoldRound
from florets.task.randomness import Purpose
from florets.task.wire.replies import Update

Pairs = Sequence[tuple[str, Update]]
FoldSteps = Generator[Plan[Update], Pairs, tuple[Mapping[str, int], int, Pairs]]


def begun(strategy: Any, r: Round) -> Steps:
    """Return a round's steps: the algorithm's own, unless the run chose another first assignment.

    With `first_round` clients train models drawn at random, or one model whose updates give the groups; "evaluate",
    where the algorithm has it, is its own round, and else "random" is.
    """
    if r.server_round == 1 and strategy.first_round == "update":
        return start_from_updates(strategy, r)
    draws = strategy.first_round == "random" and "evaluate" in strategy.settings.follows["first_round"]
    if r.server_round == 1 and draws:
        return start_from_draw(strategy, r)
    steps: Steps = strategy.round(r)
    return steps


def start_from_draw(strategy: Any, r: Round) -> Steps:
    """Let every participant train a random model."""
    groups = draw_models(r.participants, r.models.count, r.random(Purpose.FIRST_ROUND))
    strategy.assignment.update(groups)
    strategy.begins(groups, are_found=False)
    updates = yield r.train(groups)
    return r.average(updates, drawn=True)


def draw_models(clients: Sequence[Client], num_models: int, rng: np.random.Generator) -> dict[str, int]:
    """Give every client a random model, and every model a client where there are enough clients.

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


def changes_of(r: Round, updates: Sequence[tuple[str, Update]]) -> FloatArray:
    """Return what training of model 0 changed in the trainable parameters, (P, R'); of gradients themselves."""
    start = r.models.bank[0] if isinstance(r.averaging, ModelAveraging) else 0.0
    return np.stack([(update.vector - start)[r.models.layout.trained] for _, update in updates])


def group_models(
    r: Round, updates: Sequence[tuple[str, Update]], groups: Mapping[str, int], count: int
) -> FloatArray:
    """Return the next bank (count, R), averaged as the round averages, from updates of model 0.

    A client without a group counts for none; a group without updates gets the mean of all updates.
    """

    def averaged(chosen: Sequence[tuple[str, Update]], models: IntArray, rows: int) -> FloatArray:
        start = r.models.replaced(np.repeat(r.models.bank[:1], rows, axis=0))
        return r.averaging.next_bank(start, Updates(chosen), models, Updates(chosen).examples)

    members = [(key, update) for key, update in updates if key in groups]
    if members and r.privacy is not None:
        # Updates are released once; a group without members has a mean of noise alone.
        return averaged(members, np.array([groups[key] for key, _ in members], dtype=np.int64), count)
    everybody = averaged(updates, np.zeros(len(updates), dtype=np.int64), 1)
    if not members:
        return np.repeat(everybody, count, axis=0)
    labels = np.array([groups[key] for key, _ in members], dtype=np.int64)
    bank = averaged(members, labels, count)
    bank[np.setdiff1d(np.arange(count), labels)] = everybody[0]
    return bank


def start_from_updates(strategy: Any, r: Round) -> Steps:
    """Run round 1: all participants train model 0, and each group found starts from its members' mean.

    One model is sent, where losses need K, and groups differ as their data do, not as K random models do. K groups
    are cut from Ward's tree of the updates. With k=auto choose_k=folds clients also send what they learn on folds of
    their data, which gives the number of groups (`strategies.discovery`); one, if there are none. With noise, noised
    sums of these rows give the K groups.
    """
    if strategy.k == "auto" or r.privacy is not None:
        groups, count, updates = yield from _by_folds(strategy, r)
    else:
        count = r.models.count if strategy.k is None else strategy.k
        updates = yield r.train({client.key: 0 for client in r.participants})
        changes = changes_of(r, updates)
        r.note_vectors("updates", [key for key, _ in updates], changes)
        labels = update_groups(changes, count)
        groups = {key: int(group) for (key, _), group in zip(updates, labels, strict=True)}
    strategy.assignment.update(groups)
    strategy.begins(groups, are_found=True)
    return group_models(r, updates, groups, count)


def _by_folds(strategy: Any, r: Round) -> FoldSteps:
    folds = FoldRound.begin(r)
    updates = opened((yield folds.train(r)))
    folds.take(updates)
    with r.meter.part("discover"):
        found = folds.decide(None if strategy.k == "auto" else r.models.count, r)
    strategy.state.details |= found.evidence.details()
    return found.assignment, found.count, updates
