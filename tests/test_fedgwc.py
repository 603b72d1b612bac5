"""FedGWC: losses of local steps, splits, newcomers, faults, and runs that are killed."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.task.training.loop import train
from florets.task.training.losses import recorded
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.zoo.fedgwc import FedGWC, affinities, best_split, gaussian_rewards
from tests.fakes import FakeClients, Fault, lost, play

X, Y = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2


def test_the_loss_of_every_step_is_recorded_before_it() -> None:
    module = nn.Linear(3, 2)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    settings = Training(0.1, local_epochs=1, batch_size=4, optimizer="sgd", local_steps=4)
    with recorded() as losses:
        train(module, X, Y, "cross_entropy", settings, np.random.default_rng(0))
    assert len(losses) == 4
    after = [value.clone() for value in module.state_dict().values()]
    module.load_state_dict(start)
    train(module, X, Y, "cross_entropy", settings, np.random.default_rng(0))
    assert all(torch.equal(one, other) for one, other in zip(after, module.state_dict().values(), strict=True))
    order = np.random.default_rng(0).permutation(10)[:4]
    module.load_state_dict(start)
    assert losses[0] == pytest.approx(nn.functional.cross_entropy(module(X[order]), Y[order]).item())


# Splits. Twelve clients are near 0 and eight near 10: the common model is nearer to the twelve.

TARGETS = [*np.linspace(-0.3, 0.3, 12), *np.linspace(9.7, 10.3, 8)]
KEYS = [f"{client:02d}" for client in range(20)]
GROUPS = {frozenset(KEYS[:12]), frozenset(KEYS[12:])}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take for groups whatever the first comparisons say."""
    monkeypatch.setattr("florets.zoo.fedgwc.REST", 1e3)
    monkeypatch.setattr("florets.zoo.fedgwc.MOST_INDEX", 1e3)


def federation(faults: dict[tuple[str, int, int], Fault] | None = None) -> FakeClients:
    return FakeClients(TARGETS, keys=KEYS, faults=faults or {})


def fedgwc(**settings: Any) -> FedGWC:
    """Return the strategy without the tests of its models, which take most of a fake run's time."""
    return FedGWC(eval_every=999, **settings)


def groups(assignment: Mapping[str, int]) -> set[frozenset[str]]:
    return {frozenset(k for k, own in assignment.items() if own == model) for model in set(assignment.values())}


@pytest.mark.usefixtures("at_once")
def test_a_newcomer_takes_the_best_model_and_joins_its_cluster() -> None:
    away = {(kinds.TRAIN, server_round, 12): lost for server_round in range(1, 13)}
    clients = federation(away)
    strategy = fedgwc(k=2, fraction_train=0.5)
    seen = play(strategy, clients, 24, 3.0)
    split = next(report.server_round for report in seen if report.num_clusters > 1)
    assert split <= 12
    # Before, it trains the one model; later it is asked for its losses until it has trained once.
    asked = {r for kind, r, client in clients.seen if kind == kinds.LOSSES and client == 12}
    assert asked
    assert min(asked) > split
    assert not any("12" in report.assignment for report in seen[:12])
    joined = seen[-1].assignment["12"]
    assert "12" in strategy.state.clusters[joined].members
    assert sum("12" in cluster.members for cluster in strategy.state.clusters) == 1
    assert len([r for r in asked if r > 12]) == 1


def test_what_cannot_work_is_refused_before_work_starts() -> None:
    with pytest.raises(ConfigError, match=r"greater than 0 and at most 0\.5"):
        compose(["strategy=fedgwc", "strategy.fraction_train=1"])
    with pytest.raises(ConfigError, match="fewer than 3; use at least 8 clients"):
        compose(["strategy=fedgwc", "num_clients=5"])


def test_rewards_of_three_clients_by_hand() -> None:
    # Step 1: mean 2, variance 2/3, so that the outer two are at squared distance 1 / (2/3) = 3/2; step 2: all equal.
    losses = np.array([[1.0, 0.5], [2.0, 0.5], [3.0, 0.5]])
    outer = (math.exp(-0.75) + 1) / 2
    np.testing.assert_allclose(gaussian_rewards(losses, np.ones(3)), [outer, 1, outer])


def test_a_client_that_diverged_counts_as_a_hundred_times_the_median() -> None:
    losses = np.array([[1.0], [2.0], [3.0], [np.inf]])
    held = np.array([[1.0], [2.0], [3.0], [200.0]])
    found = gaussian_rewards(losses, np.ones(4))
    np.testing.assert_array_equal(found, gaussian_rewards(held, np.ones(4)))
    assert np.isfinite(gaussian_rewards(np.full((4, 2), np.inf), np.ones(4))).all()


def blocks(sizes: list[int], noise: float = 0.02, seed: int = 0) -> np.ndarray:
    """Return interactions in which clients reward their own group's company."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    drawn = np.random.default_rng(seed).normal(0, noise, (len(groups), len(groups)))
    return 0.1 + 0.1 * np.equal.outer(groups, groups) + drawn


def test_affinities_by_their_definition() -> None:
    matrix, gamma = np.random.default_rng(1).random((6, 6)), 0.7
    scaled = (matrix - matrix.min()) / (matrix.max() - matrix.min())
    found = affinities(matrix, gamma)
    for j in range(6):
        for k in range(6):
            rest = [row for row in range(6) if row not in (j, k)]
            distance = sum((scaled[row, j] - scaled[row, k]) ** 2 for row in rest)
            assert found[j, k] == pytest.approx(0.0 if j == k else math.exp(-gamma * distance))


def test_without_groups_nothing_is_split() -> None:
    # All columns are equal: everybody took part with everybody.
    rows = np.repeat(np.random.default_rng(0).random((8, 1)), 8, axis=1)
    assert best_split(affinities(rows, 0.1), 4) is None
    assert best_split(np.zeros((5, 5)), 4) is None
    # Two clients cannot be two groups and be judged.
    assert best_split(affinities(blocks([2, 1]), 0.1), 2) is None
    split = [best_split(affinities(blocks([20], seed=seed), 0.1), 2) is not None for seed in range(20)]
    assert sum(split) <= 4
