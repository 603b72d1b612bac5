"""CFL-GP against clients of one line of arithmetic: every expected number can be worked out by hand."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.commands.main import main
from florets.reports.run_figures import spectra_of
from florets.strategies.base.models import GradientAveraging, ModelAveraging
from florets.strategies.base.report import RoundReport
from florets.strategies.cfl_gp import profile as profile_module
from florets.strategies.cfl_gp import strategy as strategy_module
from florets.strategies.cfl_gp.messages import TRAIN_PROBE
from florets.strategies.cfl_gp.profile import GradientProfile, estimate_k, mixing, singular_values, spectral_features
from florets.strategies.cfl_gp.strategy import CFLGP
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.wire import kinds
from tests.fakes import FakeClients, models, steps, thetas

TWO_GROUPS = [0.0, 0.2, 10.0, 10.2]
GRADIENTS = GradientAveraging(0.1, "uniform")


def play(
    clients: FakeClients, first: ArrayRecord, rounds: int, **settings: Any
) -> tuple[CFLGP, list[RoundReport], ArrayRecord]:
    strategy = CFLGP(**{"k": 2, "averaging": GRADIENTS, "stop_unchanged": 0, **settings})
    reports: list[RoundReport] = []
    result = strategy.start(
        clients.grid(), first, num_rounds=rounds, on_round=lambda report, _: reports.append(report)
    )
    return strategy, reports, result.arrays


@pytest.fixture
def one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all clients begin in group 0."""
    monkeypatch.setattr(strategy_module, "draw_models", lambda clients, *_: {client.key: 0 for client in clients})


def probed(clients: FakeClients, rounds: int) -> list[int]:
    return [r for r in range(1, rounds + 1) if clients.asked(TRAIN_PROBE, r)]


@pytest.mark.usefixtures("one_group")
def test_the_first_clustering_is_in_round_two_and_finds_the_groups_for_the_round_after() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 3)
    assert [report.num_clusters for report in reports] == [1, 2, 2]
    final = reports[1].assignment
    assert final["0"] == final["1"] != final["2"] == final["3"]
    # All start in group 0, which is also the first probe: there is no second model to send.
    assert probed(clients, 3) == []
    assert reports[1].details["probe"] == 0


@pytest.mark.parametrize(("period", "rounds"), [(2, [2, 4, 6]), (3, [2, 5])])
def test_models_probe_one_after_the_other_every_so_many_rounds(period: int, rounds: list[int]) -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 7, period=period)
    due = [report for report in reports if report.details]
    assert [report.server_round for report in due] == rounds == probed(clients, 7)
    assert [report.details["probe"] for report in due] == [i % 2 for i in range(len(rounds))]


@pytest.mark.usefixtures("one_group")
def test_the_step_is_that_of_the_old_groups_and_the_mean_over_the_group() -> None:
    clients = FakeClients(TWO_GROUPS, examples=[1, 100, 1, 100])
    _, _, arrays = play(clients, models(4.0, 6.0), 2)
    # Round 1 from 4: mean gradient 2 (4 - 5.1) = -2.2; round 2 again with all clients: 2 (4.22 - 5.1) = -1.76.
    assert thetas(arrays) == pytest.approx([4.396, 6.0])
    weighted = GradientAveraging(0.1, "examples")
    _, _, arrays = play(clients, models(4.0, 6.0), 1, averaging=weighted)
    mean = (0.0 + 0.2 * 100 + 10.0 + 10.2 * 100) / 202
    assert thetas(arrays)[0] == pytest.approx(4 - 0.2 * (4 - mean))


@pytest.mark.usefixtures("one_group")
def test_with_model_averaging_the_models_change_is_the_feature() -> None:
    clients = FakeClients([1.0, 3.0])
    averaging = ModelAveraging("uniform")
    strategy, _, arrays = play(clients, models(4.0, 6.0), 3, period=1, averaging=averaging)
    assert strategy.state.profile is not None
    # Round 1: halfway from 4 to 1 and 3, so 3. Round 2 (probe 0, their own): 3 to 2 and 3. Round 3 (probe 1):
    # client 0 changes 6 by -2.5, client 1 by -1.5, unless it was given model 1 and trained it itself.
    np.testing.assert_allclose(strategy.state.profile.blocks[0], [[-1.0], [0.0]])
    np.testing.assert_allclose(strategy.state.profile.blocks[1], [[-2.5], [-1.5]])
    assert max(steps(arrays)) == 3


def test_clustering_stops_once_it_is_unchanged_for_a_share_of_the_rounds() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 10, stop_unchanged=0.3)
    # Changed in round 2, the same in round 4; after round 5 it has been unchanged for three rounds.
    assert [report.phase for report in reports] == ["clustering"] * 5 + ["stable"] * 5
    assert probed(clients, 10) == [2, 4]
    assert clients.asked(kinds.TRAIN, 7) == [0, 1, 2, 3]


def test_absent_clients_keep_their_blocks_and_who_was_never_asked_keeps_its_group() -> None:
    clients = FakeClients(TWO_GROUPS)
    strategy, reports, _ = play(clients, models(4.0, 6.0), 16, fraction_train=0.5, seed=1)
    assert strategy.state.profile is not None
    for report in reports:
        assert len(report.assignment) == 4
        before = reports[report.server_round - 2].assignment if report.server_round > 1 else report.assignment
        known = {key for r in reports[: report.server_round] if r.details for key in r.participants}
        assert all(report.assignment[key] == before[key] for key in before.keys() - known)
    refreshes = sum(1 for report in reports if report.details)
    assert strategy.state.profile.counts.sum() == 2 * refreshes
    final = reports[-1].assignment
    assert final["0"] == final["1"] != final["2"] == final["3"]


def test_a_profile_vector_out_of_all_proportion_costs_that_clients_reply_alone() -> None:
    def huge(content: RecordDict) -> RecordDict:
        content["profile"] = ArrayRecord({"profile": Array(np.array([1e30], dtype=np.float32))})
        return content

    # Round 4 probes model 1: two clients send a profile vector, and the reference is that of all four.
    honest, _, _ = play(FakeClients(TWO_GROUPS), models(4.0, 6.0), 4)
    liar = next(c for c in range(4) if honest.assignment[str(c)] != 1)
    clients = FakeClients(TWO_GROUPS, faults={(TRAIN_PROBE, 4, liar): huge})
    strategy, reports, _ = play(clients, models(4.0, 6.0), 4)
    assert reports[3].replies["invalid"] == 1
    assert strategy.state.profile is not None
    assert np.abs(strategy.state.profile.blocks[1]).max() < 100
    assert strategy.assignment == honest.assignment


def test_the_number_of_clusters_is_found_after_the_warm_up() -> None:
    targets = [0.0, 0.1, 0.2, 10.0, 10.1, 10.2, -30.0, -30.1, -30.2]
    clients = FakeClients(targets)
    first = models(1.0, 3.0, 5.0, 7.0, -9.0, -11.0)
    _, reports, _ = play(clients, first, 30, k="auto", k_warmup=6, stop_unchanged=0.2)
    found = [(report.server_round, report.details["k"]) for report in reports if report.details]
    assert found[:3] == [(2, 6), (4, 6), (6, 6)]
    assert {k for _, k in found[3:]} == {3}
    assert reports[-1].num_clusters == 3
    # Unchanged counts from the first estimate on.
    assert [report.phase for report in reports].index("stable") == 14


def test_with_one_model_nothing_is_probed_and_the_run_is_fedavg_to_the_bit() -> None:
    clients = FakeClients([0.3, 1.7, 2.9], examples=[3, 5, 11])
    settings = {"k": 1, "averaging": ModelAveraging("examples"), "fraction_train": 0.7}
    _, reports, arrays = play(clients, models(0.1), 4, **settings)
    fedavg = FedAvg(fraction_train=0.7).start(clients.grid(), models(0.1), num_rounds=4)
    assert arrays["0/theta"].data == fedavg.arrays["0/theta"].data
    assert probed(clients, 4) == []
    assert {report.phase for report in reports} == {"training"}


def named(clients: Iterable[int], vectors: Iterable[Any]) -> dict[str, np.ndarray]:
    return {str(client): np.array(vector) for client, vector in zip(clients, vectors, strict=True)}


def filled(blocks: list[np.ndarray]) -> GradientProfile:
    """A profile of K blocks (M, d), each refreshed once by all clients."""
    profile = GradientProfile.empty(len(blocks), blocks[0].shape[1])
    for index, block in enumerate(blocks):
        profile.refresh(index, named(range(len(block)), block))
    return profile


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_the_features_are_those_of_the_svd(num_blocks, num_clients, length, seed):
    rng = np.random.default_rng(seed)
    blocks = [rng.standard_normal((num_clients, length)).astype(np.float32) for _ in range(num_blocks)]
    dense = np.concatenate([block.T for block in blocks]).astype(np.float64)
    u, values, _ = np.linalg.svd(dense, full_matrices=False)
    gram = filled(blocks).gram([str(client) for client in range(num_clients)])
    np.testing.assert_allclose(singular_values(gram, len(values)), values[:num_clients], atol=1e-6)
    for count in range(1, min(num_clients, len(values)) + 1):
        projected = dense.T @ u[:, :count]
        features = spectral_features(gram, count)
        # Directions have no sign and, where singular values are equal, no order: inner products have both.
        np.testing.assert_allclose(features @ features.T, projected @ projected.T, atol=1e-5)
        np.testing.assert_allclose(np.abs(features), np.abs(projected), atol=1e-3)
    # On the first direction of the others, where the first client is left out.
    others = np.arange(num_clients) > 0
    u, values, _ = np.linalg.svd(dense[:, others], full_matrices=False)
    if len(values) and values[0] > 1e-3:
        features = spectral_features(gram, 1, others)
        np.testing.assert_allclose(np.abs(features), np.abs(dense.T @ u[:, :1]), atol=1e-3)


def test_a_block_is_the_mean_of_all_that_came_and_counts_are_each_clients_own():
    profile = GradientProfile.empty(2, 2)
    profile.refresh(1, named([0, 2], [[1.0, 2.0], [5.0, 0.0]]))
    profile.refresh(1, named([0], [[3.0, 0.0]]))
    profile.refresh(1, named([0, 1], [[5.0, 4.0], [7.0, 7.0]]))
    # In the order in which clients came: 0, 2, 1.
    np.testing.assert_allclose(profile.blocks[1], [[3, 2], [5, 0], [7, 7]])
    np.testing.assert_array_equal(profile.counts, [[0, 3], [0, 1], [0, 1]])
    np.testing.assert_array_equal(profile.blocks[0], np.zeros((3, 2)))
    np.testing.assert_allclose(profile.gram(["0", "1", "2"]), [[13, 35, 15], [35, 98, 35], [15, 35, 25]])
    np.testing.assert_allclose(profile.gram(["2", "0"]), [[25, 15], [15, 13]])


def test_a_block_that_a_client_lacks_is_the_mean_of_the_three_clients_most_like_it():
    # In block 0 client 3 is nearest to the clients of 2, 3 and 1, whose mean in block 1 is 6.
    known, lacked = [1.0, 2.0, 3.0, 2.0, 10.0, 11.0], [5.0, 6.0, 7.0, 0.0, 50.0, 51.0]
    profile = GradientProfile.empty(2, 1)
    profile.refresh(0, named(range(6), ([value] for value in known)))
    others = [0, 1, 2, 4, 5]
    profile.refresh(1, named(others, ([lacked[client]] for client in others)))
    completed = np.column_stack([known, [*lacked[:3], 6.0, *lacked[4:]]])
    np.testing.assert_allclose(profile.gram(list("012345")), completed @ completed.T)
    some = np.array([3, 5])
    np.testing.assert_allclose(profile.gram(["3", "5"]), completed[some] @ completed[some].T)
    # With fewer to choose from, the mean of those that there are.
    has = np.array([True, False, True])
    np.testing.assert_allclose(mixing(np.full((3, 3), 0.5), has), [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]])


def groups(num_groups: int, members: int, noise: float, seed: int) -> np.ndarray:
    """Gram matrix of clients whose vectors are a common mean, their group's centre and noise."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((num_groups, 200)) + 10
    vectors = np.repeat(centres, members, axis=0) + noise * rng.standard_normal((num_groups * members, 200))
    return filled([vectors]).gram([str(client) for client in range(len(vectors))])


@pytest.mark.parametrize("num_groups", [3, 6])
def test_the_number_of_clusters_is_read_off_the_profile(num_groups):
    for seed in range(3):
        gram = groups(num_groups, 5, 1.0, seed)
        assert estimate_k(gram, 8, np.random.default_rng(0)) == num_groups


def test_of_many_clients_the_features_come_from_lanczos_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = groups(40, 3, 1.0, 5)
    exact, values = spectral_features(gram, 3), singular_values(gram, 3)
    monkeypatch.setattr(profile_module, "EXACT_UP_TO", 10)
    np.testing.assert_allclose(spectral_features(gram, 3), exact, atol=1e-6 * values[0])
    np.testing.assert_array_equal(spectral_features(gram, 3), spectral_features(gram, 3))
    # Where Lanczos' steps lead nowhere all is decomposed.
    np.testing.assert_array_equal(spectral_features(np.zeros((12, 12)), 2), np.zeros((12, 2)))


SHORT = ("strategy=cfl_gp", "num_rounds=6", "strategy.stop_unchanged=0")


def test_the_rounds_named_keep_features_and_all_singular_values() -> None:
    clients, seen = FakeClients([0.0, 0.2, 10.0, 10.2]), list[RoundReport]()
    strategy = CFLGP(k=2, averaging=GradientAveraging(0.1, "uniform"), stop_unchanged=0, spectrum_rounds=[4])
    strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=4, on_round=lambda report, _: seen.append(report))
    assert [len(report.details.get("singular_values", [])) for report in seen] == [0, 3, 0, 3]  # type: ignore[arg-type]
    assert [report.server_round for report in seen if "spectrum" in report.details] == [4]
    kept = seen[3].compared
    assert kept is not None
    assert (kept.kind, kept.clients) == ("features", tuple("0123"))
    # One vector of length 1 for each of two models: two values are not 0, and the features hold all of the profile.
    values, found = np.array(seen[3].details["spectrum"]), kept.vectors
    assert len(values) == 4
    assert values[2:] == pytest.approx(0, abs=1e-6)
    assert np.linalg.svd(found, compute_uv=False) == pytest.approx(values[:2], rel=1e-5)
    # Other groups have other gradients, whatever the model: the first two are alike, and the last two.
    gaps = np.linalg.norm(found[:, np.newaxis] - found, axis=2)
    assert gaps[0, 1] < 0.1 * gaps[0, 2]
    assert gaps[2, 3] < 0.1 * gaps[0, 2]


@pytest.mark.slow
def test_a_run_keeps_its_features(tmp_path: Path) -> None:
    assert main([*SHORT, "strategy.spectrum_rounds=[2,6]", "quiet=true", f"results_dir={tmp_path}"]) == 0
    (folder,) = (path.parent for path in tmp_path.rglob("report.html"))
    found = spectra_of(folder)
    assert [spectrum.server_round for spectrum in found] == [2, 6]
    assert found[0].clusters.tolist() == [number // 5 for number in range(20)]
    assert found[0].features.shape == (20, 4)
