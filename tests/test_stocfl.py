"""StoCFL: merging by cosines, models near a global one, and what happens when clients come one after the other."""

import numpy as np
import pytest
import torch
from torch import nn

from florets.strategies.core.cluster import canonical
from florets.strategies.stocfl.strategy import merge_similar
from florets.task.training.loop import train
from florets.task.training.losses import Anchored, Objective, Proximal
from florets.task.training.settings import Training
from tests.method_runs import play

SHORT = ("strategy=stocfl", "strategy.anchor_epochs=5")

# Merging


def at(*degrees: float) -> np.ndarray:
    turn = np.radians(degrees)
    return np.stack([np.cos(turn), np.sin(turn)], axis=1)


def test_the_two_most_alike_merge_first_and_their_mean_counts_from_then_on() -> None:
    # 0 and 20 become 10, which is 45 from 55: cos 45 = 0.707; 20 to 55 alone would be cos 35 = 0.82.
    assert merge_similar(at(0, 20, 55), 0.8).tolist() == [0, 0, 1]
    assert merge_similar(at(0, 20, 55), 0.7).tolist() == [0, 0, 0]
    # 55 and 20 are nearer to each other than 0 and 30 are.
    assert merge_similar(at(0, 55, 30, 60), np.cos(np.radians(6))).tolist() == [0, 1, 2, 1]


def oracle(sums: np.ndarray, least: float) -> set[frozenset[int]]:
    """Merge sets of rows, every cosine taken from its definition at each step."""
    groups = [frozenset([row]) for row in range(len(sums))]
    while len(groups) > 1:
        means = [sums[sorted(group)].sum(axis=0) for group in groups]
        best = max(
            ((np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b), i, j + i + 1)
             for i, a in enumerate(means) for j, b in enumerate(means[i + 1 :])),
        )  # fmt: skip
        if best[0] < least:
            break
        groups = [group for k, group in enumerate(groups) if k not in best[1:]] + [groups[best[1]] | groups[best[2]]]
    return set(groups)


@pytest.mark.parametrize("seed", range(4))
def test_merging_agrees_with_its_definition_in_every_order_of_the_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums, order = rng.standard_normal((8, 3)), rng.permutation(8)
    for least in (-0.5, 0.0, 0.5, 0.9):
        found = merge_similar(sums, least)
        sets = {frozenset(np.flatnonzero(found == group).tolist()) for group in np.unique(found)}
        assert sets == oracle(sums, least)
        np.testing.assert_array_equal(merge_similar(sums[order], least), canonical(found[order]))


# Clients


def trained_towards(objective: Objective, start: dict[str, torch.Tensor]) -> torch.Tensor:
    module = nn.Linear(3, 2)
    module.load_state_dict(start)
    x, y = torch.randn(12, 3, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 2
    settings = Training(learning_rate=0.1, local_epochs=3, batch_size=4, optimizer="sgd")
    train(module, x, y, "cross_entropy", settings, np.random.default_rng(0), objective)
    return torch.cat([value.flatten() for value in module.state_dict().values()])


def test_the_term_pulls_towards_the_other_model() -> None:
    start = {name: value.clone() for name, value in nn.Linear(3, 2).state_dict().items()}
    far = {name: torch.full_like(value, 5.0) for name, value in start.items()}
    plain, pulled = trained_towards(Objective(), start), trained_towards(Objective((Anchored(0.5, far),)), start)
    assert (pulled > plain).all()
    # Where the other model is the start, this is FedProx's term.
    same = trained_towards(Objective((Anchored(0.5, start),)), start)
    assert torch.equal(same, trained_towards(Objective((Proximal(0.5),)), start))


# Runs


@pytest.mark.parametrize("more", [(), ("strategy.fraction_train=0.5", "num_rounds=3")])
def test_one_cluster_without_a_global_model_is_fedavg_to_the_bit(more: tuple[str, ...]) -> None:
    found = play(*SHORT, "strategy.tau=-1", "strategy.mu=0", *more)
    assert found.final == play("strategy=fedavg", *more).final
    # Trained from the same start on the same draws, the global model is the same one, too.
    assert [a.numpy().tobytes() for a in found.strategy.state.shared.record.values()] == found.final


def test_groups_are_found_while_clients_are_sampled_a_few_at_a_time() -> None:
    found = play(*SHORT, "strategy.fraction_train=0.5", "num_rounds=12", "train.local_steps=1")
    assert len(found.reports[0].assignment) == 3
    assert len(found.reports[-1].assignment) == 6
    assert found.ari == 1.0
    assert found.models.count == len(found.strategy.state.directions) == 2


def test_without_merges_every_client_has_a_model_and_mu_ties_them() -> None:
    free, tied = (play(*SHORT, "strategy.tau=2", f"strategy.mu={mu}") for mu in (0, 10))
    assert free.models.count == tied.models.count == 6
    assert tied.models.bank.std(axis=0).mean() < free.models.bank.std(axis=0).mean() / 2
