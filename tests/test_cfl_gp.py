"""CFL-GP against clients of one line of arithmetic: every expected number can be worked out by hand."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.averaging import GradientAveraging, ModelAveraging
from florets.strategies.base.loop import Earlier
from florets.strategies.base.report import RoundReport
from florets.strategies.cfl_gp.messages import TRAIN_PROBE
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


def probed(clients: FakeClients, rounds: int) -> list[int]:
    return [r for r in range(1, rounds + 1) if clients.asked(TRAIN_PROBE, r)]


def lost(_: RecordDict) -> RecordDict:
    raise RuntimeError("lost")


def test_the_first_clustering_is_in_round_two_and_finds_the_groups_for_the_round_after() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 3, initial_groups="one")
    assert [report.num_clusters for report in reports] == [1, 2, 2]
    final = reports[1].assignment
    assert final["0"] == final["1"] != final["2"] == final["3"]
    # All start in group 0, which is also the first probe: there is no second model to send.
    assert probed(clients, 3) == []
    assert reports[1].details["probe"] == 0


@pytest.mark.parametrize(("period", "rounds"), [(1, [2, 3, 4, 5, 6, 7]), (2, [2, 4, 6]), (3, [2, 5])])
def test_models_probe_one_after_the_other_every_so_many_rounds(period: int, rounds: list[int]) -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 7, period=period)
    due = [report for report in reports if report.details]
    assert [report.server_round for report in due] == rounds == probed(clients, 7)
    assert [report.details["probe"] for report in due] == [i % 2 for i in range(len(rounds))]


def test_only_clients_of_other_models_are_sent_the_probe_and_every_client_gets_one_message() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 4)
    # After round 2 the groups are known; model 1 is the probe of round 4.
    others = [c for c in range(4) if reports[2].assignment[str(c)] != 1]
    assert clients.asked(TRAIN_PROBE, 4) == others
    assert clients.asked(kinds.TRAIN, 4) == [c for c in range(4) if c not in others]
    assert all(len(clients.asked(kinds.TRAIN, r) + clients.asked(TRAIN_PROBE, r)) == 4 for r in range(1, 5))
    assert len(reports) == 4


def test_the_step_is_that_of_the_old_groups_and_the_mean_over_the_group() -> None:
    clients = FakeClients(TWO_GROUPS, examples=[1, 100, 1, 100])
    _, _, arrays = play(clients, models(4.0, 6.0), 2, initial_groups="one")
    # Round 1 from 4: mean gradient 2 (4 - 5.1) = -2.2; round 2 again with all clients: 2 (4.22 - 5.1) = -1.76.
    assert thetas(arrays) == pytest.approx([4.396, 6.0])
    weighted = GradientAveraging(0.1, "examples")
    _, _, arrays = play(clients, models(4.0, 6.0), 1, initial_groups="one", averaging=weighted)
    mean = (0.0 + 0.2 * 100 + 10.0 + 10.2 * 100) / 202
    assert thetas(arrays)[0] == pytest.approx(4 - 0.2 * (4 - mean))


def test_blocks_are_means_over_time_whichever_way_the_vectors_came() -> None:
    # Model 1 has no clients and stays at 6 while all are in group 0; a period of one probes 0, 1, 0, 1.
    clients = FakeClients([1.0, 1.0])
    strategy, _, _ = play(clients, models(4.0, 6.0), 5, period=1, initial_groups="one")
    assert strategy.state.profiles is not None
    # Own gradients in rounds 2 and 4, from models 1 + 3 * 0.8 and 1 + 3 * 0.8^3; on the probe always 10.
    own = 2 * 3 * (0.8 + 0.8**3) / 2
    np.testing.assert_allclose(strategy.state.profiles.profile.blocks[0], [[own], [own]], rtol=1e-6)
    np.testing.assert_allclose(strategy.state.profiles.profile.blocks[1], [[10.0], [10.0]])
    strategy, _, _ = play(clients, models(4.0, 6.0), 5, period=1, initial_groups="one", running_mean=False)
    assert strategy.state.profiles is not None
    np.testing.assert_allclose(strategy.state.profiles.profile.blocks[0], [[6 * 0.8**3]] * 2, rtol=1e-6)


def test_with_model_averaging_the_models_change_is_the_feature() -> None:
    clients = FakeClients([1.0, 3.0])
    averaging = ModelAveraging("uniform")
    strategy, _, arrays = play(clients, models(4.0, 6.0), 3, period=1, initial_groups="one", averaging=averaging)
    assert strategy.state.profiles is not None
    # Round 1: halfway from 4 to 1 and 3, so 3. Round 2 (probe 0, their own): 3 to 2 and 3. Round 3 (probe 1):
    # client 0 changes 6 by -2.5, client 1 by -1.5, unless it was given model 1 and trained it itself.
    np.testing.assert_allclose(strategy.state.profiles.profile.blocks[0], [[-1.0], [0.0]])
    np.testing.assert_allclose(strategy.state.profiles.profile.blocks[1], [[-2.5], [-1.5]])
    assert max(steps(arrays)) == 3


def test_clusters_keep_the_models_of_most_of_their_clients() -> None:
    clients = FakeClients([0.0, 0.1, 0.2, 10.0, 10.1, 10.2])
    _, reports, _ = play(clients, models(4.0, 6.0), 12)
    found = [report.assignment for report in reports[1:]]
    assert all(assignment == found[0] for assignment in found)
    before, after = reports[0].assignment, reports[1].assignment
    kept = sum(before[key] == after[key] for key in before)
    assert kept >= 3  # With the two models exchanged, the other 6 - kept would have kept theirs.


def test_clustering_stops_once_it_is_unchanged_for_a_share_of_the_rounds() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 10, stop_unchanged=0.3)
    # Changed in round 2, the same in round 4; after round 5 it has been unchanged for three rounds.
    assert [report.phase for report in reports] == ["clustering"] * 5 + ["stable"] * 5
    assert probed(clients, 10) == [2, 4]
    assert clients.asked(kinds.TRAIN, 7) == [0, 1, 2, 3]


def test_rounds_without_clustering_alone_do_not_stop_it() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 10, period=4, stop_unchanged=0.1)
    assert [report.phase for report in reports] == ["clustering"] * 6 + ["stable"] * 4


def test_a_clustering_that_did_not_hear_everybody_anew_does_not_stop_it() -> None:
    faults = {(kind, 4, 3): lost for kind in (kinds.TRAIN, TRAIN_PROBE)}
    clients = FakeClients(TWO_GROUPS, faults=faults)
    _, reports, _ = play(clients, models(4.0, 6.0), 10, stop_unchanged=0.3)
    # Unchanged since round 2, but with three vectors of four clients; round 6 brings four more.
    assert [report.phase for report in reports] == ["clustering"] * 6 + ["stable"] * 4


def test_clustering_stops_after_a_set_number_of_rounds_or_never() -> None:
    clients = FakeClients(TWO_GROUPS)
    _, reports, _ = play(clients, models(4.0, 6.0), 8, cluster_rounds=4)
    assert [report.stable for report in reports] == [False] * 4 + [True] * 4
    assert probed(clients, 8) == [2, 4]
    clients = FakeClients(TWO_GROUPS)
    play(clients, models(4.0, 6.0), 8)
    assert probed(clients, 8) == [2, 4, 6, 8]


def test_a_clustering_that_stopped_stays_so_when_the_run_goes_on_for_more_rounds() -> None:
    clients = FakeClients(TWO_GROUPS)
    stopped, reports, arrays = play(clients, models(4.0, 6.0), 6, stop_unchanged=0.3)
    assert reports[-1].stable
    settings: dict[str, Any] = {"k": 2, "averaging": GRADIENTS, "stop_unchanged": 0.3}
    again, more = CFLGP(**settings), FakeClients(TWO_GROUPS)
    again.state = stopped.state
    going_on: list[RoundReport] = []
    again.start(
        more.grid(),
        arrays,
        num_rounds=60,
        on_round=lambda report, _: bool(going_on.append(report)) or report.server_round == 9,
        earlier=Earlier(rounds=6),
    )
    # A share of 0.3 of 60 rounds would ask for 18 unchanged ones.
    assert [report.phase for report in going_on] == ["stable"] * 3
    assert probed(more, 9) == []


def test_absent_clients_keep_their_blocks_and_who_was_never_asked_keeps_its_group() -> None:
    clients = FakeClients(TWO_GROUPS)
    strategy, reports, _ = play(clients, models(4.0, 6.0), 16, fraction_train=0.5, seed=1)
    assert strategy.state.profiles is not None
    for report in reports:
        assert len(report.assignment) == 4
        before = reports[report.server_round - 2].assignment if report.server_round > 1 else report.assignment
        known = {key for r in reports[: report.server_round] if r.details for key in r.participants}
        assert all(report.assignment[key] == before[key] for key in before.keys() - known)
    refreshes = sum(1 for report in reports if report.details)
    assert strategy.state.profiles.profile.counts.sum() == 2 * refreshes
    final = reports[-1].assignment
    assert final["0"] == final["1"] != final["2"] == final["3"]


def test_a_client_that_comes_after_the_stop_takes_the_model_with_the_lowest_loss() -> None:
    kinds_of_round = [(kind, r, 3) for r in range(1, 7) for kind in (kinds.TRAIN, TRAIN_PROBE)]
    clients = FakeClients(TWO_GROUPS, faults=dict.fromkeys(kinds_of_round, lost))
    _, reports, _ = play(clients, models(4.0, 6.0), 9, cluster_rounds=6)
    assert clients.asked(kinds.LOSSES, 6) == []
    assert clients.asked(kinds.LOSSES, 7) == [3]
    assert reports[6].assignment["3"] == reports[6].assignment["2"]
    assert clients.asked(kinds.TRAIN, 7) == [0, 1, 2, 3]
    assert clients.asked(kinds.LOSSES, 8) == []


def test_a_newcomer_whose_losses_are_lost_sits_the_round_out() -> None:
    faults = {(kind, r, 3): lost for r in (1, 2) for kind in (kinds.TRAIN, TRAIN_PROBE)}
    clients = FakeClients(TWO_GROUPS, faults={**faults, (kinds.LOSSES, 3, 3): lost})
    _, _, _ = play(clients, models(4.0, 6.0), 4, cluster_rounds=2)
    assert clients.asked(kinds.TRAIN, 3) == [0, 1, 2]
    assert clients.asked(kinds.TRAIN, 4) == [0, 1, 2, 3]


def test_a_malformed_profile_vector_costs_that_clients_reply_alone() -> None:
    def broken(content: RecordDict) -> RecordDict:
        content[kinds.PROFILE] = ArrayRecord()
        return content

    clients = FakeClients(TWO_GROUPS, faults={(TRAIN_PROBE, r, c): broken for r in (2, 4) for c in (0, 2)})
    strategy, reports, _ = play(clients, models(4.0, 6.0), 6)
    assert sum(report.replies["invalid"] for report in reports) == len(
        [c for r in (2, 4) for c in clients.asked(TRAIN_PROBE, r) if c in (0, 2)]
    )
    assert strategy.state.profiles is not None
    assert reports[-1].assignment["1"] != reports[-1].assignment["3"]


def test_a_profile_vector_out_of_all_proportion_costs_that_clients_reply_alone() -> None:
    def huge(content: RecordDict) -> RecordDict:
        content[kinds.PROFILE] = ArrayRecord({kinds.PROFILE: Array(np.array([1e30], dtype=np.float32))})
        return content

    # Round 4 probes model 1: two clients send a profile vector, and the reference is that of all four.
    honest, _, _ = play(FakeClients(TWO_GROUPS), models(4.0, 6.0), 4)
    liar = next(c for c in range(4) if honest.assignment[str(c)] != 1)
    clients = FakeClients(TWO_GROUPS, faults={(TRAIN_PROBE, 4, liar): huge})
    strategy, reports, _ = play(clients, models(4.0, 6.0), 4)
    assert reports[3].replies["invalid"] == 1
    assert strategy.state.profiles is not None
    assert np.abs(strategy.state.profiles.profile.blocks[1]).max() < 100
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


def test_fewer_models_than_clusters_and_a_profile_of_nothing_are_refused_at_once() -> None:
    clients = FakeClients(TWO_GROUPS)
    with pytest.raises(ValueError, match="k=3 clusters need as many models, but the initial arrays hold 2"):
        play(clients, models(0.0, 1.0), 1, k=3)
    with pytest.raises(ValueError, match="compression=2: one in so many of 1 parameters is none"):
        play(clients, models(0.0, 1.0), 1, compression=2)
    assert clients.asked(kinds.TRAIN) == []


def test_clients_are_told_what_to_leave_out() -> None:
    clients = FakeClients(TWO_GROUPS)
    told = {"compression": 1, "profile_layers": ["theta"], "quantise": "round", "quantise_digits": 3}
    play(clients, models(4.0, 6.0), 2, seed=7, **told)
    sent = {config[kinds.SERVER_ROUND]: config for config in clients.configs if kinds.QUANTISE in config}
    assert sent.keys() == {1, 2}
    assert (sent[1][kinds.QUANTISE], sent[1][kinds.QUANTISE_DIGITS]) == ("round", 3)
    probes = [config for config in clients.configs if kinds.PROFILE_LAYERS in config]
    assert probes
    assert all(config[kinds.PROFILE_LAYERS] == ["theta"] and config[kinds.PROFILE_SEED] == 7 for config in probes)


def test_the_time_of_clustering_counts_for_itself_and_not_for_the_averaging_around_it() -> None:
    _, reports, _ = play(FakeClients(TWO_GROUPS), models(4.0, 6.0), 2)
    seconds = reports[1].seconds
    assert seconds["cluster"] > 0
    assert sum(value for part, value in seconds.items() if part != "total") <= seconds["total"]
