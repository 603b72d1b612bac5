"""Oracle, one-shot and k-FED against fake clients whose answers are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.strategies.base.federation import FederationError
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.one_shot.strategy import OneShot
from florets.strategies.oracle.strategy import Oracle
from florets.task.wire import kinds
from florets.zoo.k_fed import KFED, KMEANS, group_centres
from tests.fakes import FakeClients, Fault, lost, play, thetas

TARGETS = [0.0, 0.2, 10.0, 10.4]
KINDS = {OneShot: kinds.TRAIN_ESTIMATE, KFED: KMEANS}


def one_shot(**settings: Any) -> OneShot:
    return OneShot(**settings)


def k_fed(**settings: Any) -> KFED:
    return KFED(input_shape=(1,), **settings)


def clusters(*numbers: int) -> dict[tuple[str, int, int], Fault]:
    """Let each client tell its true cluster."""

    def telling(number: int) -> Fault:
        def tell(content: RecordDict) -> RecordDict:
            content.metric_records[kinds.METRICS][kinds.CLUSTER] = number
            return content

        return tell

    return {(kinds.HELLO, 0, client): telling(number) for client, number in enumerate(numbers)}


def test_the_oracle_trains_each_true_clusters_model() -> None:
    clients = FakeClients(TARGETS, examples=[10, 30, 10, 10], faults=clusters(1, 1, 0, 0))
    strategy = Oracle()
    seen = play(strategy, clients, 1, 4.0, 8.0)
    assert seen[0].assignment == {"0": 1, "1": 1, "2": 0, "3": 0}
    assert seen[0].phase == "training"
    # Model 0: 4 moves to 7.0 and 7.2. Model 1: 8 moves to 4.0 (n=10) and 4.1 (n=30).
    assert thetas(strategy.context.models.record) == pytest.approx([7.1, 4.075])


def test_the_oracle_from_the_true_models_lets_clients_choose_in_round_1() -> None:
    clients = FakeClients(TARGETS)
    seen = play(Oracle(mode="true_start"), clients, 1, 10.2, 0.1)
    assert seen[0].assignment == {"0": 1, "1": 1, "2": 0, "3": 0}
    assert seen[0].phase == "clustering"
    assert clients.asked(kinds.TRAIN_SELECT, 1) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ((0, 0, 1, kinds.NO_CLUSTER), r"client 3 is not known.*known clusters"),
        ((0, 0, 1, 2), r"cluster 2, but the oracle has 2 models.*k to at least 3"),
    ],
)
def test_the_oracle_refuses_clients_whose_cluster_it_cannot_use(told: tuple[int, ...], message: str) -> None:
    clients = FakeClients(TARGETS, faults=clusters(*told))
    with pytest.raises(FederationError, match=message):
        play(Oracle(), clients, 1, 0.0, 1.0)
    assert clients.asked(kinds.TRAIN) == []


@pytest.mark.parametrize("make", [one_shot, k_fed])
def test_the_groups_are_found_in_round_1_and_stay(make: Callable[..., Strategy]) -> None:
    clients = FakeClients(TARGETS, examples=[10, 30, 10, 10])
    strategy = make()
    seen = play(strategy, clients, 3, 4.0, 8.0)
    assert [report.phase for report in seen] == ["clustering", "stable", "stable"]
    assert all(report.assignment == {"0": 0, "1": 0, "2": 1, "3": 1} for report in seen)
    kind = KINDS[type(strategy)]  # type: ignore[index]
    assert clients.asked(kind) == clients.asked(kind, 1) == [0, 1, 2, 3]
    assert clients.asked(kinds.TRAIN, 1) == [0, 1, 2, 3]
    # Group 0 nears 0.15, the mean of 0.0 (n=10) and 0.2 (n=30), by halves; group 1 nears 10.2.
    expected = [0.15 + (4 - 0.15) / 8, 10.2 + (8 - 10.2) / 8]
    assert thetas(strategy.context.models.record) == pytest.approx(expected)


@pytest.mark.parametrize("make", [one_shot, k_fed])
def test_a_client_whose_answer_was_lost_is_placed_when_it_takes_part(make: Callable[..., Strategy]) -> None:
    strategy = make()
    kind = KINDS[type(strategy)]  # type: ignore[index]
    clients = FakeClients(TARGETS, faults={(kind, 1, 3): lost, (kind, 2, 3): lost})
    seen = play(strategy, clients, 3, 4.0, 8.0)
    assert "3" not in seen[1].assignment
    assert seen[2].assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
    assert (clients.asked(kind, 2), clients.asked(kind, 3)) == ([3], [3])
    assert clients.asked(kinds.TRAIN, 2) == [0, 1, 2]


# k-FED


def centres(*rows: list[float], sizes: list[int], dtype: str = "float32") -> RecordDict:
    return RecordDict(
        {
            kinds.ARRAYS: ArrayRecord({"centres": Array(np.array(rows, dtype=dtype))}),
            kinds.METRICS: MetricRecord({"sizes": sizes}),
        }
    )


def test_a_client_of_two_kinds_of_data_joins_the_group_of_most_of_its_samples() -> None:
    # Client 4 holds 3 samples near 0 and 4 near 10.
    faults = {(KMEANS, 1, 4): lambda _: centres([0.1], [10.1], sizes=[3, 4])}
    strategy = KFED(input_shape=(1,), local_clusters=2)
    play(strategy, FakeClients([*TARGETS, 0.0], faults=faults), 1, 4.0, 8.0)
    assert strategy.assignment == {"0": 0, "1": 0, "2": 1, "3": 1, "4": 1}


def plain(centres: FloatArray, owners: IntArray, k: int, first: int) -> list[set[int]]:
    """Alg. 2 word for word, on lists; groups as sets of rows."""
    chosen = [tuple(row) for row in dict.fromkeys(map(tuple, centres[owners == first]))]
    while len(chosen) < k:
        gaps = [min(np.linalg.norm(np.subtract(row, taken)) for taken in chosen) for row in centres]
        if max(gaps) == 0:
            break
        chosen.append(tuple(centres[int(np.argmax(gaps))]))
    members: dict[int, set[int]] = {}
    for index, row in enumerate(centres):
        nearest = int(np.argmin([np.linalg.norm(np.subtract(row, taken)) for taken in chosen]))
        members.setdefault(nearest, set()).add(index)
    return sorted(members.values(), key=min)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=12, unique=True),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 100),
)
def test_it_is_the_papers_algorithm(points: list[tuple[int, int]], k: int, local: int, seed: int) -> None:
    # Noise of no arithmetic pattern keeps exact ties, which either may break its own way, out of the comparison.
    noise = np.random.default_rng(seed).uniform(0, 0.1, (len(points), 2))
    centres = np.array(points, dtype=np.float64) + noise
    owners = np.arange(len(points)) // min(local, k)
    groups, means = group_centres(centres, owners, k, np.random.default_rng(seed))
    first = int(np.random.default_rng(seed).choice(np.unique(owners)))
    expected = plain(centres, owners, k, first)
    assert [set(np.flatnonzero(groups == g).tolist()) for g in range(len(means))] == expected
    for g, rows in enumerate(expected):
        np.testing.assert_allclose(means[g], centres[sorted(rows)].mean(axis=0))
