"""Outliers in CLoVE: passing faults are kept out, clients whose data are in another unit are not."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.experiment import run_experiment
from florets.strategies.base.averaging import GradientAveraging
from florets.strategies.base.encoding import decode, encode
from florets.strategies.base.models import Models
from florets.strategies.base.placement import FrozenClusters
from florets.strategies.base.report import RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core import FloatArray
from florets.strategies.core.outliers import clipped, equal_for_all_models
from florets.strategies.fedavg.strategy import FedAvg
from florets.strategies.shared.loss_outliers import EQUAL, FAR, Outliers
from florets.task.data.dataset import Dataset
from florets.task.wire import kinds
from tests.fakes import FakeClients, models


def found(outliers: Outliers, losses: dict[str, list[float]], factor: float | None = 100.0) -> dict[str, set[str]]:
    reports = [(key, np.array(vector)) for key, vector in losses.items()]
    outliers.measure([vector for _, vector in reports])
    return outliers.reject(reports, factor)


ORDINARY = {"a": [1.0, 2.0], "b": [1.5, 1.0], "c": [2.0, 0.5]}


def test_an_outlier_is_refused_two_rounds_running_and_then_clustered() -> None:
    outliers = Outliers()
    for _ in range(2):
        assert found(outliers, {**ORDINARY, "z": [400.0, 420.0]}) == {FAR: {"z"}}
    assert found(outliers, {**ORDINARY, "z": [400.0, 420.0]}) == {}
    assert outliers.limit(["a", "z"], 2.5) == 2.5
    assert outliers.limit(["a", "b"], 2.5) == math.inf
    # Its own model is better now: below the bound, and yet it is no ordinary client.
    assert found(outliers, {**ORDINARY, "z": [30.0, 420.0]}) == {}
    assert outliers.admitted == {"z"}
    # In the others' range it is.
    found(outliers, {**ORDINARY, "z": [1.0, 15.0]})
    assert outliers.admitted == set()


def test_a_fault_that_passes_starts_from_the_beginning() -> None:
    outliers = Outliers()
    for _ in range(3):
        for vector, refused in (([1e4, 2e4], True), ([2e4, 1e4], True), ([1.0, 2.0], False)):
            assert bool(found(outliers, {**ORDINARY, "z": vector})) is refused


@pytest.mark.parametrize("vector", [[1e4, 1e4], [math.inf, math.inf], [math.inf, 1e30]])
def test_losses_that_are_equal_for_all_models_stay_refused(vector: list[float]) -> None:
    outliers = Outliers()
    for _ in range(9):
        assert found(outliers, {**ORDINARY, "z": vector}) == {EQUAL: {"z"}}


def test_without_the_bound_or_with_one_model_nobody_is_refused() -> None:
    assert found(Outliers(), {**ORDINARY, "z": [1e9, 1e9]}, factor=None) == {}
    assert found(Outliers(), {key: vector[:1] for key, vector in {**ORDINARY, "z": [1e9, 1e9]}.items()}) == {}


def test_vectors_are_clipped_in_their_own_direction() -> None:
    vectors = np.array([[1.0, 2.0], [3.0, 6.0], [math.inf, 8.0], [1e308, 5e307]])
    np.testing.assert_allclose(clipped(vectors, 4.0), [[1.0, 2.0], [2.0, 4.0], [math.inf, 4.0], [4.0, 2.0]])
    np.testing.assert_array_equal(clipped(vectors, math.inf), vectors)
    np.testing.assert_array_equal(equal_for_all_models(vectors), [False, False, True, False])


def test_a_newcomer_of_the_group_in_another_unit_finds_its_centroid() -> None:
    # Centroids of clipped vectors; unclipped, (400, 150) is nearer to the first one.
    frozen = FrozenClusters(Models(models(0.0, 1.0)), np.array([[0.1, 9.0], [5.0, 2.0]]), np.array([0, 1]), limit=5.0)
    assert frozen.nearest_model(np.array([400.0, 150.0])) == 1


def test_outliers_survive_a_checkpoint() -> None:
    outliers = Outliers(2.0, {"z": 2}, {"y"})
    arrays: dict[str, FloatArray] = {}
    again = decode(json.loads(json.dumps(encode(outliers, arrays))), arrays)
    assert vars(again) == vars(outliers)


def run(strategy: CLoVE | FedAvg, clients: FakeClients, first: ArrayRecord, rounds: int) -> list[RoundReport]:
    seen: list[RoundReport] = []
    strategy.start(clients.grid(), first, num_rounds=rounds, on_round=lambda report, _: seen.append(report))
    return seen


def reporting(*losses: float) -> Callable[[RecordDict], RecordDict]:
    def change(content: RecordDict) -> RecordDict:
        content.metric_records[kinds.METRICS][kinds.MODEL_LOSSES] = list(losses)
        return content

    return change


def test_a_group_in_another_unit_gets_a_model_and_its_refusals_are_reported() -> None:
    # Losses 1 to 9 of the first group on both models, 900 and more of the second.
    targets = [0.0, 0.2, 0.1, 0.3, 30.0, 30.2, 30.1, 30.3]
    seen = run(CLoVE(k=2, first_round="evaluate"), FakeClients(targets), models(0.5, -1.0), 4)
    assert [sorted(report.rejected) for report in seen] == [["4", "5", "6", "7"]] * 2 + [[]] * 2
    assert seen[0].rejected["4"] == FAR
    final = seen[-1].assignment
    assert [final[str(client)] for client in range(8)] == [final["0"]] * 4 + [1 - final["0"]] * 4


def test_a_client_that_always_reports_the_same_for_every_model_does_not_hold_up_the_others() -> None:
    faults = {(kinds.LOSSES, r, 5): reporting(1e4, 1e4) for r in range(1, 9)}
    clients = FakeClients([0.0, 0.2, 0.1, 10.0, 10.2, 10.1], faults=faults)
    seen = run(CLoVE(k=2, first_round="evaluate"), clients, models(4.0, 6.0), 8)
    assert "5" not in seen[-1].assignment
    assert [report.stable for report in seen] == [False] * 3 + [True] * 5
    # Nor is it placed after the freeze.
    assert seen[-1].rejected == {"5": EQUAL}


def test_a_repeated_round_counts_an_outlier_once() -> None:
    calls = []

    def once(content: RecordDict) -> RecordDict:
        calls.append(1)
        if len(calls) <= 4:
            raise RuntimeError("lost")
        return content

    faults = {(kinds.TRAIN, 1, client): once for client in range(4)}
    faults |= {(kinds.LOSSES, r, 4): reporting(1e4, 2e4) for r in range(1, 4)}
    clients = FakeClients([0.0, 0.2, 10.0, 10.2, 0.1], faults=faults)
    strategy = CLoVE(k=2, first_round="evaluate", quorum=0.5, round_tries=2)
    seen = run(strategy, clients, models(4.0, 6.0), 3)
    assert [report.tries for report in seen] == [2, 1, 1]
    assert [list(report.rejected) for report in seen] == [["4"], ["4"], []]


# The update rule on the same data: its bound is far wider, and knows no way back.


@pytest.mark.parametrize(("unit", "rejected"), [(20.0, 0), (900.0, 0), (5000.0, 4)])
def test_gradients_in_another_unit_are_refused_from_a_thousand_times_on(unit: float, rejected: int) -> None:
    targets = [1.0, 1.2, 1.1, 1.3, 1.0 * unit, 1.2 * unit, 1.1 * unit, 1.3 * unit]
    strategy = FedAvg(averaging=GradientAveraging(0.0))
    (first, _) = run(strategy, FakeClients(targets), models(0.0), 2)
    assert len(first.rejected) == rejected


# The whole app


def linear_groups(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Linear regressions, one for each group; the second one's targets are 20 times as large."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((num_clusters, 5))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    group = np.repeat(np.arange(num_clusters), 500)
    x = rng.standard_normal((len(group), 5))
    y = np.einsum("ij,ij->i", x, theta[group]) * np.where(group == 1, 20.0, 1.0)
    test = np.arange(len(x)) % 5 == 0
    x, y = x.astype(np.float32), y.astype(np.float32)
    return Dataset(x[~test], y[~test], x[test], y[test], 1, group[~test], group[test])


LINEAR = (
    "experiment=clove/linear", "task.data=tests.test_clove_outliers:linear_groups", "task.data_options={}", "k=2",
    "task.num_clusters=2", "num_clients=8", "task.partition_options.samples_per_client=100", "train.local_epochs=2",
    "quiet=true",
)  # fmt: skip


@pytest.mark.parametrize("seed", [0, 2])
def test_linear_regressions_with_targets_20_times_as_large_are_placed_and_told_apart(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = compose([*LINEAR, f"seed={seed}", "num_rounds=5"])
    summary = run_experiment(LocalGrid(app, 8), config, tmp_path / "run")
    assert (summary.final_ari, summary.final_ari_clients, summary.final_unplaced) == (1.0, 8, 0)
    assert " clients not placed)" in capsys.readouterr().err


def test_a_client_that_stays_refused_is_told_on_the_screen_in_the_log_and_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(LocalGrid):
        def pull_messages(self, message_ids):  # type: ignore[no-untyped-def]
            replies = super().pull_messages(message_ids)
            for reply in replies:
                metrics = reply.content.metric_records.get(kinds.METRICS, {})
                if reply.metadata.src_node_id == 2 and kinds.MODEL_LOSSES in metrics:
                    metrics[kinds.MODEL_LOSSES] = [1e9, 1e9]
            return replies

    caplog.set_level(logging.INFO, logger="florets")
    config = compose([*LINEAR, "num_rounds=4", "first_round=random"])
    summary = run_experiment(Broken(app, 8), config, tmp_path / "run")
    text = "client 0, in 3 of 4 rounds: rejected as an outlier: its losses are far above the others'"
    screen = capsys.readouterr().err
    assert f"warning: {text} (strategy.outlier_loss) and equal for all models" in screen
    assert text in (tmp_path / "run" / "run.log").read_text()
    assert text.replace("'", "&#39;") in (tmp_path / "run" / "report.html").read_text()
    assert any(text in warning for warning in summary.warnings)
