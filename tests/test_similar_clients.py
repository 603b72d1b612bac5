"""PACFL, FedClust, SR-FCA and StoCFL: what is compared of clients, and the groups that come of it."""

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean
from torch import nn

from florets.strategies.core.cluster import canonical
from florets.task.training.loop import train
from florets.task.training.objective import Anchored, Objective, Proximal
from florets.task.training.settings import Training
from florets.task.wire import kinds
from florets.zoo.pacfl import SEND_VECTORS, PrincipalVectors, angle_matrix, principal_directions
from florets.zoo.shared.agglomerative import group_by_largest_gap
from florets.zoo.sr_fca import largest_ratio, mutual, pivot_groups, trimmed_mean, trimmed_means
from florets.zoo.stocfl import merge_similar
from tests.method_runs import play

# PACFL: principal vectors and their angles
HALF = np.sqrt(0.5)


def directions(columns: list[list[float]], places: list[int] | None = None) -> PrincipalVectors:
    vectors = np.array(columns, dtype=np.float64).T
    return PrincipalVectors(np.array(places or range(vectors.shape[1]), dtype=np.int64), vectors, 100)


def test_angles_by_hand() -> None:
    # The x axis and the diagonal of x and y; the y and the z axis.
    one, other = directions([[1, 0, 0], [HALF, HALF, 0]]), directions([[0, 1, 0], [0, 0, 1]])
    assert angle_matrix([one, other], "smallest_pair")[0, 1] == pytest.approx(45)
    # x with y, 90, and the diagonal with z, 90.
    assert angle_matrix([one, other], "sum_corresponding")[0, 1] == pytest.approx(180)


def test_principal_vectors_are_those_of_each_class() -> None:
    x = np.array([[3.0, 0, 0], [0, 2.0, 0], [0, 0, 5.0], [0, 0, 1.0]])
    vectors, places = principal_directions(x, np.array([0, 0, 2, 2]), 2)
    # Class 0 spans x and y, the longer first; class 2 the z axis alone.
    np.testing.assert_allclose(np.abs(vectors), np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), atol=1e-12)
    assert places.tolist() == [0, 1, 4]


@pytest.mark.parametrize("measure", ["smallest_pair", "sum_corresponding"])
def test_groups_that_differ_in_their_classes_are_found(measure: str) -> None:
    found = play("strategy=pacfl", f"strategy.angle={measure}", "num_rounds=1")
    assert found.ari == 1.0
    assert found.models.count == 2


def test_clients_of_one_distribution_are_one_group_unless_every_gap_counts() -> None:
    one = ("task.partition=composed", "task.num_clusters=1", "task.partition_options={}", "num_rounds=1")
    for name in ("pacfl", "fedclust"):
        assert play(f"strategy={name}", *one).models.count == 1
        assert play(f"strategy={name}", "strategy.least_ratio=1", *one).models.count > 1


def test_rotations_are_found_by_default_and_half_of_them_by_single_vectors() -> None:
    turned = ("experiment=quickstart", "strategy=pacfl", "num_rounds=1")
    assert play(*turned).ari == 1.0
    assert play(*turned, "strategy.angle=smallest_pair").models.count == 2


def test_a_client_that_comes_later_is_placed_by_the_extended_tree() -> None:
    whole = play("strategy=pacfl", "num_rounds=3")
    lost = {(SEND_VECTORS, 1, client) for client in (0, 5)}
    late = play("strategy=pacfl", "num_rounds=3", lost=lost)
    assert sorted(late.reports[0].assignment) == ["1", "2", "3", "4"]
    assert late.reports[1].assignment == late.reports[2].assignment == whole.reports[2].assignment
    assert [report.phase for report in late.reports] == ["clustering", "stable", "stable"]


def test_without_classes_the_vectors_are_of_all_data() -> None:
    assert play("strategy=pacfl", "strategy.vectors_of=client", "num_rounds=1").ari == 1.0
    short = ("task.data_options.train_per_line=60", "task.data_options.test_per_line=20", "num_rounds=1")
    linear = play("experiment=cfl_gp/linear", "strategy=pacfl", *short)
    assert {len(one.places) for one in linear.strategy.state.descriptions.values()} == {1}


# FedClust: the last layer
def test_the_last_layer_alone_goes_up_and_finds_the_groups() -> None:
    found = play("strategy=fedclust")
    assert found.ari == 1.0
    # 10 classes of 8 hidden units, and their biases; the whole model has 64 * 8 + 8 more.
    assert {len(vector) for vector in found.strategy.state.descriptions.values()} == {90}
    one_model = found.reports[1].bytes_up
    assert found.reports[0].bytes_up < 1.5 * one_model
    assert [report.phase for report in found.reports] == ["clustering", "stable"]


def test_a_later_client_is_compared_at_the_learning_rate_of_the_first_round() -> None:
    falling = ("train.schedule=exponential", "train.schedule_factor=0.01")
    late = play("strategy=fedclust", *falling, lost={(kinds.TRAIN_ESTIMATE, 1, 3)})
    assert late.ari == 1.0
    steady = play("strategy=fedclust", lost={(kinds.TRAIN_ESTIMATE, 1, 3)})
    found, expected = (run.strategy.state.descriptions["3"] for run in (late, steady))
    np.testing.assert_array_equal(found, expected)


def test_a_late_layer_with_values_beyond_reason_is_refused_though_it_comes_alone() -> None:
    place = (kinds.TRAIN_ESTIMATE, 2, 3)
    refused = play("strategy=fedclust", "num_rounds=3", lost={(kinds.TRAIN_ESTIMATE, 1, 3)}, huge={place})
    assert "3" not in refused.reports[1].assignment
    assert refused.reports[1].replies["invalid"] == 1
    # It is asked again, and as good as any.
    assert refused.ari == 1.0


# SR-FCA: cross losses, trimmed means, refinements
# Trimmed means


@pytest.mark.parametrize("share", [0.0, 0.1, 0.15, 0.34, 0.49])
def test_the_trimmed_mean_agrees_with_scipys_in_every_order(share: float) -> None:
    rows = np.random.default_rng(0).standard_normal((9, 4))
    np.testing.assert_allclose(trimmed_mean(rows, share), trim_mean(rows, share, axis=0))
    np.testing.assert_array_equal(trimmed_mean(rows[::-1], share), trimmed_mean(rows, share))


def test_counters_and_statistics_are_not_trimmed_and_an_empty_model_stays() -> None:
    bank = np.array([[5.0, 5, 5], [7.0, 7, 7]])
    updates = np.array([[0.0, 1, 0], [1.0, 2, 1], [20.0, 9, 20]])
    integers, untrained = np.array([False, True, False]), np.array([False, False, True])
    found = trimmed_means(bank, updates, np.zeros(3, dtype=np.int64), 0.34, integers, untrained)
    assert found.tolist() == [[1, 9, 7], [7, 7, 7]]


def test_cross_losses_are_the_mean_of_both() -> None:
    losses = np.array([[0.5, 4.0, np.nan], [2.0, 0.1, 6.0], [1.0, 0.0, 0.2]])
    # The NaN counts as the largest loss, 6.
    assert mutual(losses).tolist() == [[0, 3, 3.5], [3, 0, 3], [3.5, 3, 0]]
    order = [2, 0, 1]
    np.testing.assert_array_equal(mutual(losses[np.ix_(order, order)]), mutual(losses)[np.ix_(order, order)])


def test_the_largest_factor_decides_and_not_the_largest_difference() -> None:
    # Merges at 1, 1, 1, 10 and 30: a factor of 10, then a difference of 20.
    points = np.array([0.0, 1.0, 11.0, 12.0, 42.0, 43.0])
    distances = np.abs(np.subtract.outer(points, points))
    assert largest_ratio(distances) == pytest.approx(np.sqrt(10))
    assert group_by_largest_gap(distances, "single").threshold == 20.0
    # What is next to nothing is nothing: 1e-9 to 1e-4 is no factor.
    assert 1e-3 < largest_ratio(np.array([[0, 1e-9, 1.0], [1e-9, 0, 1.0], [1.0, 1.0, 0]])) < 1.0
    assert largest_ratio(np.zeros((3, 3))) == np.inf


def test_a_pivot_takes_its_neighbours_and_not_theirs() -> None:
    # A chain of six, 0.1 apart: single linkage makes one group of it.
    points = 0.1 * np.arange(6)
    distances = np.abs(np.subtract.outer(points, points))
    found = {tuple(pivot_groups(distances, 0.15, np.random.default_rng(seed)).tolist()) for seed in range(40)}
    # Of pivots 1 and 4; of 0, 3 and 5; of 2 and 5, which leave 0 alone.
    assert {(0, 0, 0, 1, 1, 1), (0, 0, 1, 1, 1, 2), (0, 1, 1, 1, 2, 2)} <= found
    assert {max(groups) + 1 for groups in found} == {2, 3}
    # A neighbour is at most as far as the threshold, be that 0.
    assert pivot_groups(np.array([[0.0, 3.0], [3.0, 0.0]]), 3.0, np.random.default_rng(0)).tolist() == [0, 0]
    assert pivot_groups(distances, 0.0, np.random.default_rng(0)).tolist() == [0, 1, 2, 3, 4, 5]


def test_groups_are_found_and_stay_through_the_refinements() -> None:
    found = play("strategy=sr_fca", "num_rounds=8")
    phases = [report.phase for report in found.reports]
    assert phases == ["clustering", *2 * ["training", "training", "clustering"], "stable"]
    assert found.ari == 1.0
    assert found.models.count == 2
    assert {report.assignment["0"] for report in found.reports} == {0}


def test_a_client_that_round_1_lost_is_placed_by_its_loss() -> None:
    found = play("strategy=sr_fca", "train.local_epochs=5", lost={(kinds.LOSSES, 1, 4)})
    assert "4" not in found.reports[0].assignment
    assert found.ari == 1.0


# StoCFL: cosines, models near a global one, clients that come one after the other
STOCFL = ("strategy=stocfl",)


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


@pytest.mark.parametrize("more", [(), ("strategy.fraction_train=0.5", "num_rounds=3")])
def test_one_cluster_without_a_global_model_is_fedavg_to_the_bit(more: tuple[str, ...]) -> None:
    found = play(*STOCFL, "strategy.tau=-1", "strategy.mu=0", *more)
    assert found.final == play("strategy=fedavg", *more).final
    # Trained from the same start on the same draws, the global model is the same one, too.
    assert [a.numpy().tobytes() for a in found.strategy.state.shared.record.values()] == found.final


def test_groups_are_found_while_clients_are_sampled_a_few_at_a_time() -> None:
    found = play(*STOCFL, "strategy.fraction_train=0.5", "num_rounds=12", "train.local_steps=1")
    assert len(found.reports[0].assignment) == 3
    assert len(found.reports[-1].assignment) == 6
    assert found.ari == 1.0
    assert found.models.count == len(found.strategy.state.directions) == 2


def test_without_merges_every_client_has_a_model_and_mu_ties_them() -> None:
    free, tied = (play(*STOCFL, "strategy.tau=2", f"strategy.mu={mu}") for mu in (0, 10))
    assert free.models.count == tied.models.count == 6
    assert tied.models.bank.std(axis=0).mean() < free.models.bank.std(axis=0).mean() / 2
