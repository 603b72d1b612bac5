"""PACFL: principal vectors, angles between them, and the groups that they make."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from florets.strategies.pacfl.client import principal_directions
from florets.strategies.pacfl.messages import PRINCIPAL_VECTORS, PrincipalVectors
from florets.strategies.pacfl.strategy import angle_matrix
from tests.method_runs import play

HALF = np.sqrt(0.5)


def directions(columns: list[list[float]], places: list[int] | None = None) -> PrincipalVectors:
    vectors = np.array(columns, dtype=np.float64).T
    return PrincipalVectors(np.array(places or range(vectors.shape[1]), dtype=np.int64), vectors, 100)


def random_directions(seed: int, size: int = 5) -> list[PrincipalVectors]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(size):
        vectors = rng.standard_normal((6, 3))
        places = np.sort(rng.choice(6, size=3, replace=False))
        found.append(PrincipalVectors(places, vectors / np.linalg.norm(vectors, axis=0), 100))
    return found


# Angles


def test_angles_by_hand() -> None:
    # The x axis and the diagonal of x and y; the y and the z axis.
    one, other = directions([[1, 0, 0], [HALF, HALF, 0]]), directions([[0, 1, 0], [0, 0, 1]])
    assert angle_matrix([one, other], "smallest_pair")[0, 1] == pytest.approx(45)
    # The y axis lies in both planes, though neither vector of the first is it.
    assert angle_matrix([one, other], "smallest_principal")[0, 1] == pytest.approx(0, abs=1e-5)
    # x with y, 90, and the diagonal with z, 90.
    assert angle_matrix([one, other], "sum_corresponding")[0, 1] == pytest.approx(180)


def test_principal_angles_agree_with_scipys() -> None:
    clients = random_directions(1)
    found = angle_matrix(clients, "smallest_principal")
    for i in range(5):
        for j in range(i):
            expected = np.degrees(subspace_angles(clients[i].principal, clients[j].principal)).min()
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


# Clients


def test_principal_vectors_are_those_of_each_class() -> None:
    x = np.array([[3.0, 0, 0], [0, 2.0, 0], [0, 0, 5.0], [0, 0, 1.0]])
    vectors, places = principal_directions(x, np.array([0, 0, 2, 2]), 2)
    # Class 0 spans x and y, the longer first; class 2 the z axis alone.
    np.testing.assert_allclose(np.abs(vectors), np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), atol=1e-12)
    assert places.tolist() == [0, 1, 4]


# Runs


@pytest.mark.parametrize("measure", ["smallest_pair", "smallest_principal", "sum_corresponding"])
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
    lost = {(PRINCIPAL_VECTORS, 1, client) for client in (0, 5)}
    late = play("strategy=pacfl", "num_rounds=3", lost=lost)
    assert sorted(late.reports[0].assignment) == ["1", "2", "3", "4"]
    assert late.reports[1].assignment == late.reports[2].assignment == whole.reports[2].assignment
    assert [report.phase for report in late.reports] == ["clustering", "stable", "stable"]


def test_without_classes_the_vectors_are_of_all_data() -> None:
    assert play("strategy=pacfl", "strategy.vectors_of=client", "num_rounds=1").ari == 1.0
    short = ("task.data_options.train_per_line=60", "task.data_options.test_per_line=20", "num_rounds=1")
    linear = play("experiment=cfl_gp/linear", "strategy=pacfl", *short)
    assert all(len(one.places) <= 3 for one in linear.strategy.state.descriptions.values())
