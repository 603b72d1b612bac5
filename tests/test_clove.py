"""CLoVE and IFCA against clients of one line of arithmetic: every expected number can be worked out by hand."""

from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

import florets
from florets.strategies.base.federation import FederationError
from florets.strategies.base.models import GradientAveraging, ModelAveraging, Models
from florets.strategies.base.report import STABLE_FROM
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.fedavg.strategy import FedAvg
from florets.strategies.ifca.strategy import IFCA
from florets.strategies.local.strategy import Local
from florets.task.wire import kinds
from florets.zoo.cfl_s import CFLS
from tests.fakes import FakeClients, lost, models, play, steps, thetas

TWO_GROUPS = [0.0, 0.2, 10.0, 10.2]


# FedAvg, FedProx, Local-only


def test_fedavg_weighs_models_by_examples_and_keeps_the_largest_counter() -> None:
    clients = FakeClients([2.0, 6.0], examples=[10, 30])
    result = FedAvg().start(clients.grid(), models(0.0), num_rounds=1)
    # Halfway to the targets: 1 and 3, weighted 1 : 3.
    assert thetas(result.arrays) == [2.5]
    assert steps(result.arrays) == [1]
    assert result.arrays["0/steps"].dtype == "int64"


def test_local_keeps_one_model_for_each_client_on_the_server() -> None:
    clients = FakeClients([2.0, 6.0, -4.0])
    strategy = Local()
    result = strategy.start(clients.grid(), models(0.0), num_rounds=2)
    # The bank has nothing to average and stays as it was.
    assert thetas(result.arrays) == [0.0]
    assert thetas(strategy.final_models(Models(result.arrays)).record) == [1.5, 4.5, -3.0]
    assert strategy.assignment == {"0": 0, "1": 1, "2": 2}


# CLoVE


def test_clove_finds_the_groups_and_trains_one_model_for_each() -> None:
    clients = FakeClients(TWO_GROUPS)
    strategy = CLoVE(k=2, first_round="evaluate")
    result = strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=1)
    assert strategy.assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
    # Group 0 moves from 4 to 2.0 and 2.1, group 1 from 6 to 8.0 and 8.1.
    assert thetas(result.arrays) == pytest.approx([2.05, 8.05])


def test_clove_clusters_where_every_client_has_its_lowest_loss_on_one_model() -> None:
    # Models 4.9 and -50: model 0 is the better one for everybody, so IFCA puts all clients on it.
    clients = FakeClients(TWO_GROUPS)
    ifca = IFCA(first_round="evaluate")
    ifca.start(clients.grid(), models(4.9, -50.0), num_rounds=1)
    assert set(ifca.assignment.values()) == {0}
    clove = CLoVE(k=2, first_round="evaluate")
    clove.start(clients.grid(), models(4.9, -50.0), num_rounds=1)
    assert clove.assignment["0"] == clove.assignment["1"] != clove.assignment["2"] == clove.assignment["3"]


def test_a_random_first_round_gives_every_model_a_client_and_asks_for_no_losses() -> None:
    for seed in range(10):
        clients = FakeClients(TWO_GROUPS)
        strategy = CLoVE(k=4, seed=seed)
        strategy.start(clients.grid(), models(1.0, 2.0, 3.0, 4.0), num_rounds=1)
        assert sorted(strategy.assignment.values()) == [0, 1, 2, 3]
        assert clients.asked(kinds.LOSSES) == []


def test_clove_stops_asking_once_every_client_has_said_three_times_the_same() -> None:
    clients = FakeClients(TWO_GROUPS)
    seen = play(CLoVE(k=2, first_round="evaluate"), clients, 6, 4.0, 6.0)
    # Assigned in rounds 1, 2, 3; clients say so with their update of round 3; in force from round 4.
    assert [report.phase for report in seen] == ["clustering"] * 3 + ["stable"] * 3
    assert [report.details for report in seen] == [{}, {}, {STABLE_FROM: 4}, {}, {}, {}]
    assert [report.stable for report in seen] == [False] * 3 + [True] * 3
    assert clients.asked(kinds.LOSSES, 3) == [0, 1, 2, 3]
    assert clients.asked(kinds.LOSSES, 4) == []
    assert clients.asked(kinds.TRAIN, 4) == [0, 1, 2, 3]


def test_a_client_that_is_behind_keeps_the_clustering_open() -> None:
    # Client 3's losses never arrive in round 2: only 3 of 4 declare stability in round 3.
    faults = {(kinds.LOSSES, 2, 3): lost}
    seen = play(CLoVE(k=2, first_round="evaluate"), FakeClients(TWO_GROUPS, faults=faults), 6, 4.0, 6.0)
    assert [report.stable for report in seen] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("kind", [kinds.LOSSES, kinds.TRAIN])
def test_a_client_that_fails_for_good_does_not_keep_the_clustering_open(kind: str) -> None:
    faults = {(kind, r, 3): lost for r in range(1, 9)}
    seen = play(CLoVE(k=2, first_round="evaluate"), FakeClients(TWO_GROUPS, faults=faults), 8, 4.0, 6.0)
    # Silent for three rounds running in round 3, in which the others declare.
    assert [report.stable for report in seen] == [False] * 3 + [True] * 5


def test_a_client_that_comes_after_stability_gets_the_nearest_saved_centroid() -> None:
    # Client 4 sees nothing until round 6: its app fails when it is asked or trained before.
    faults = {(kinds.LOSSES, r, 4): lost for r in range(1, 6)}
    clients = FakeClients([*TWO_GROUPS, 9.8], faults=faults)
    strategy = CLoVE(k=2, first_round="evaluate")
    seen = play(strategy, clients, 6, 4.0, 6.0)
    assert "4" not in seen[4].assignment
    assert seen[5].assignment["4"] == seen[5].assignment["2"]
    # Only the newcomer is asked, on the models saved at stability and not on those of the round.
    assert clients.asked(kinds.LOSSES, 6) == [4]
    assert clients.asked(kinds.TRAIN, 6) == [0, 1, 2, 3, 4]
    assert strategy.state.frozen is not None
    assert thetas(strategy.state.frozen.models.record) != thetas(strategy.context.models.record)


@pytest.mark.parametrize("strategy", [CLoVE(k=2, first_round="evaluate"), IFCA(first_round="evaluate")])
def test_a_model_that_diverged_does_not_end_the_run(strategy: CLoVE | IFCA) -> None:
    def diverged(content: RecordDict) -> RecordDict:
        content.metric_records[kinds.METRICS]["losses"][1] = kinds.DIVERGED  # type: ignore[index]
        return content

    kind = kinds.LOSSES if isinstance(strategy, CLoVE) else kinds.TRAIN_SELECT
    faults = {(kind, 1, client): diverged for client in range(4)}
    (report,) = play(strategy, FakeClients(TWO_GROUPS, faults=faults), 1, 4.0, 1e9)
    assert report.replies["invalid"] == 0
    assert len(report.assignment) == 4


@pytest.mark.parametrize("settings", [{"k": 2}, {"k": "auto"}])
def test_outlier_losses_of_one_client_are_refused_and_the_others_go_on(settings: dict[str, object]) -> None:
    def implausible(content: RecordDict) -> RecordDict:
        content.metric_records[kinds.METRICS]["losses"] = [1e200, 1e300]
        return content

    clients = FakeClients(TWO_GROUPS, faults={(kinds.LOSSES, 1, 0): implausible})
    strategy = CLoVE(first_round="evaluate", **settings)  # type: ignore[arg-type]
    (report,) = play(strategy, clients, 1, 4.0, 6.0)
    assert report.replies["invalid"] == 1
    assert report.assignment["1"] != report.assignment["2"] == report.assignment["3"]


def test_fewer_models_than_clusters_are_refused_at_once() -> None:
    clients = FakeClients(TWO_GROUPS)
    with pytest.raises(ValueError, match="k=3 clusters need as many models, but the initial arrays hold 2"):
        CLoVE(k=3).start(clients.grid(), models(0.0, 1.0), num_rounds=1)
    with pytest.raises(ValueError, match="probes=1: the initial arrays hold 2 models, and need 2 to train"):
        CLoVE(k=2, probes=1).start(clients.grid(), models(0.0, 1.0), num_rounds=1)
    assert clients.asked(kinds.TRAIN) == []


def test_unknown_k_is_found() -> None:
    clients = FakeClients([0.0, 0.1, 0.2, 10.0, 10.1, 10.2, -30.0, -30.1, -30.2])
    strategy = CLoVE(k="auto", first_round="evaluate")
    seen = play(strategy, clients, 3, 1.0, 3.0, 5.0, 7.0, -9.0, -11.0)
    assert [report.num_clusters for report in seen] == [3, 3, 3]


def test_without_matching_clusters_take_the_order_of_the_keys() -> None:
    # The first cluster is that of client 0, whose better model is model 1 here.
    plain = CLoVE(k=2, first_round="evaluate", matching="none")
    plain.start(FakeClients(TWO_GROUPS).grid(), models(6.0, 4.0), num_rounds=1)
    assert plain.assignment == {"0": 0, "1": 0, "2": 1, "3": 1}


def test_clusters_of_square_roots_are_matched_by_their_losses() -> None:
    # Two clients at 0 and one at -18, models at 1 and 2: losses are 2 * 1 + 400 one way and 2 * 4 + 361 the other,
    # roots 2 * 1 + 20 and 2 * 2 + 19.
    strategy = CLoVE(k=2, first_round="evaluate", square_root=True)
    strategy.start(FakeClients([0.0, 0.0, -18.0]).grid(), models(1.0, 2.0), num_rounds=1)
    assert strategy.assignment == {"0": 1, "1": 1, "2": 0}


# IFCA


def test_ifca_lets_clients_choose_in_the_training_exchange_itself() -> None:
    clients = FakeClients(TWO_GROUPS)
    strategy = IFCA(first_round="evaluate")
    result = strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=1)
    assert strategy.assignment == {"0": 0, "1": 0, "2": 1, "3": 1}
    assert thetas(result.arrays) == pytest.approx([2.05, 8.05])
    assert clients.asked(kinds.LOSSES) == []
    assert clients.asked(kinds.TRAIN_SELECT) == [0, 1, 2, 3]


@pytest.mark.parametrize("by", ["loss", "accuracy"])
def test_ifca_asks_its_clients_to_choose_by_errors_where_accuracy_decides(by: str) -> None:
    clients = FakeClients(TWO_GROUPS)
    play(IFCA(first_round="evaluate", choose_by=by), clients, 1, 4.0, 6.0)
    asked = zip(clients.seen, clients.configs, strict=True)
    choices = [kinds.BY_ERRORS in config for (kind, *_), config in asked if kind == kinds.TRAIN_SELECT]
    assert choices == [by == "accuracy"] * 4


def test_a_model_that_nobody_chose_keeps_its_bits() -> None:
    clients = FakeClients(TWO_GROUPS)
    first = models(4.9, -50.1)
    result = IFCA(first_round="evaluate").start(clients.grid(), first, num_rounds=2)
    assert result.arrays["1/theta"].data == first["1/theta"].data


@pytest.mark.parametrize(
    ("averaging", "expected"),
    [
        # Gradients at 4 for targets 0 and 2: 8 and 4; at 8 for target 10: -4. Examples 10, 30, 20.
        (GradientAveraging(0.1, "examples"), [4 - 0.1 * 5, 8 + 0.1 * 4]),
        (GradientAveraging(0.1, "uniform"), [4 - 0.1 * 6, 8 + 0.1 * 4]),
        (GradientAveraging(0.1, "all_participants"), [4 - 0.1 * 12 / 3, 8 + 0.1 * 4 / 3]),
        (GradientAveraging(0.1, "uniform", "adam"), [4 - 0.1, 8 + 0.1]),
        # Models: 2 and 3; 9. "all_participants" moves by the group's share of the examples.
        (ModelAveraging("examples"), [2.75, 9.0]),
        (ModelAveraging("uniform"), [2.5, 9.0]),
        (ModelAveraging("all_participants"), [4 + (10 * -2 + 30 * -1) / 60, 8 + 20 * 1 / 60]),
    ],
)
def test_every_weighting_and_averaging_option_gives_its_hand_computed_step(
    averaging: ModelAveraging | GradientAveraging, expected: list[float]
) -> None:
    clients = FakeClients([0.0, 2.0, 10.0], examples=[10, 30, 20])
    strategy = IFCA(first_round="evaluate", averaging=averaging)
    result = strategy.start(clients.grid(), models(4.0, 8.0), num_rounds=1)
    assert thetas(result.arrays) == pytest.approx(expected)


# What all share


def test_shared_layers_are_averaged_over_everybody_and_equal_in_all_models() -> None:
    clients = FakeClients([0.0, 2.0, 10.0], examples=[10, 30, 20])
    strategy = CLoVE(k=2, first_round="random", shared_layers=["theta"], seed=0)
    result = strategy.start(clients.grid(), models(4.0, 8.0), num_rounds=1)
    # Model 0's theta, 4, is everybody's start: 2, 3 and 7, weighted 10, 30, 20.
    expected = (10 * 2 + 30 * 3 + 20 * 7) / 60
    assert thetas(result.arrays) == pytest.approx([expected, expected])
    assert "theta" in result.arrays
    assert "1/theta" not in result.arrays


def test_a_clients_traceback_stays_out_of_the_servers_log(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: RecordDict) -> RecordDict:
        raise ValueError("\x1b[31mTraceback (most recent call last):\n  File secret.py\nthe real reason\x1b[0m")

    clients = FakeClients(TWO_GROUPS, faults={(kinds.TRAIN, 1, 0): fails})
    seen = play(FedAvg(), clients, 1, 0.0)
    assert seen[0].replies["error"] == 1
    (record,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert record.getMessage() == "client 0 failed: the real reason"


def test_a_round_without_any_usable_update_ends_the_run() -> None:
    def fails(_: RecordDict) -> RecordDict:
        raise ValueError("no memory left")

    clients = FakeClients([1.0, 2.0], faults={(kinds.TRAIN, 2, c): fails for c in (0, 1)})
    with pytest.raises(FederationError, match=r"round 2 .*2 failed, for example client 0: .*no memory left"):
        FedAvg().start(clients.grid(), models(0.0), num_rounds=3)


def test_participation_draws_the_asked_share_anew_each_round() -> None:
    clients = FakeClients([float(i) for i in range(10)])
    seen = play(FedAvg(fraction_train=0.3), clients, 5, 0.0)
    assert {len(report.participants) for report in seen} == {3}
    assert len({report.participants for report in seen}) > 1
    again = play(FedAvg(fraction_train=0.3), FakeClients([float(i) for i in range(10)]), 5, 0.0)
    assert [report.participants for report in again] == [report.participants for report in seen]


def test_sharing_every_layer_is_refused_before_models_are_added() -> None:
    clients = FakeClients(TWO_GROUPS)
    with pytest.raises(ValueError, match="leaves nothing to differ between the models that this algorithm adds"):
        CFLS(shared_layers=["theta", "steps"]).start(clients.grid(), models(0.0), num_rounds=1)
    assert not clients.seen


def test_a_strategy_object_runs_once() -> None:
    strategy = FedAvg()
    strategy.start(FakeClients([1.0]).grid(), models(0.0), num_rounds=1)
    with pytest.raises(RuntimeError, match="has already run"):
        strategy.start(FakeClients([1.0]).grid(), models(0.0), num_rounds=1)


class Halves(florets.strategies.CLoVE):
    """The clients whose loss on model 0 is above the median are a cluster; models are matched in reverse order."""

    def cluster_losses(self, losses: Any, k: int, rng: np.random.Generator) -> Any:
        return (losses[:, 0] > np.median(losses[:, 0])).astype(np.int64)

    def match(self, losses: Any, clusters: Any, previous: Any) -> Any:
        return np.array([1, 0])


def run(strategy: Any) -> dict[str, int]:
    strategy.start(FakeClients([0.0, 0.1, 5.0, 5.1]).grid(), models(0.0, 1.0), num_rounds=1)
    return dict(strategy.assignment)


def test_a_subclass_clusters_and_matches_in_its_own_way() -> None:
    assert run(Halves(k=2, first_round="evaluate")) == {"0": 1, "1": 1, "2": 0, "3": 0}
