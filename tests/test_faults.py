"""Faulty clients, rounds below the quorum, late replies: counted, said, and without a trace in the results."""

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from florets.strategies.base.exchange import Request, send, sort_replies
from florets.strategies.base.federation import FederationError
from florets.strategies.base.report import RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.core.outliers import loss_scale, outlier_losses, outlier_updates
from florets.strategies.fedavg.strategy import FedAvg
from florets.strategies.ifca.strategy import IFCA
from florets.strategies.local.strategy import Local
from florets.task.wire import kinds
from tests.fakes import FakeClients, models, thetas
from tests.faulty_runs import play

TWO_GROUPS = [0.0, 0.2, 0.1, 10.0, 10.2, 10.1]
FIRST = (4.0, 6.0)


def fails(_: RecordDict) -> RecordDict:
    raise ValueError("no power")


def failing(kind: str, server_round: int, clients: Iterable[int], tries: int) -> FakeClients:
    """Clients of whom some fail in a round's first tries."""
    calls: dict[int, int] = {}

    def fault(client: int) -> object:
        def once(content: RecordDict) -> RecordDict:
            calls[client] = calls.get(client, 0) + 1
            return fails(content) if calls[client] <= tries else content

        return once

    return FakeClients(TWO_GROUPS, faults={(kind, server_round, c): fault(c) for c in clients})  # type: ignore[misc]


def run(strategy: FedAvg | CLoVE | IFCA | Local, clients: FakeClients) -> tuple[list[float], list[RoundReport]]:
    seen: list[RoundReport] = []
    result = strategy.start(
        clients.grid(), models(*FIRST), num_rounds=6, on_round=lambda report, _: seen.append(report)
    )
    return thetas(result.arrays), seen


# Quorum


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (lambda: CLoVE(k=2, quorum=0.5, memory=True), kinds.TRAIN),
        (lambda: CLoVE(k=2, quorum=0.5, memory=True), kinds.LOSSES),
        (lambda: CLoVE(k=2, quorum=0.5), kinds.LOSSES),
        (lambda: IFCA(first_round="evaluate", quorum=0.5), kinds.TRAIN_SELECT),
        (lambda: FedAvg(quorum=0.5), kinds.TRAIN),
        (lambda: Local(quorum=0.5), kinds.TRAIN),
    ],
)
def test_a_round_below_the_quorum_is_repeated_as_if_it_had_never_been(build, kind) -> None:  # type: ignore[no-untyped-def]
    expected, honest = run(build(), FakeClients(TWO_GROUPS))
    found, seen = run(build(), failing(kind, 3, [0, 1, 2, 3], tries=2))
    assert found == expected
    assert [report.assignment for report in seen] == [report.assignment for report in honest]
    assert [report.phase for report in seen] == [report.phase for report in honest]
    assert [report.tries for report in seen] == [1, 1, 3, 1, 1, 1]
    assert seen[2].replies["error"] == 8
    assert seen[2].bytes_down > honest[2].bytes_down


def test_a_client_whose_losses_were_lost_sits_out_though_they_are_remembered() -> None:
    clients = failing(kinds.LOSSES, 3, [0], tries=1)
    run(CLoVE(k=2, memory=True, stop_when_stable=False), clients)
    assert clients.asked(kinds.TRAIN, 3) == [1, 2, 3, 4, 5]
    assert clients.asked(kinds.TRAIN, 4) == [*range(6)]


def test_a_round_that_stays_below_the_quorum_ends_the_run_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    clients = failing(kinds.TRAIN, 3, [0, 1, 2, 3], tries=99)
    reason = r"round 3 returned a valid update from 2 of 6 asked, and needs 3: 4 failed, .*no power \(tried 3 times\)"
    with pytest.raises(FederationError, match=reason):
        run(FedAvg(quorum=0.5), clients)
    assert "The round is repeated: try 3 of 3" in caplog.text
    assert clients.asked(kinds.TRAIN, 3) == [*range(6)] * 3


def test_fewer_clients_than_asked_for_may_start_where_that_is_allowed() -> None:
    faults = {(kinds.HELLO, 0, 1): fails}
    with pytest.raises(FederationError, match=r"5 of 6 clients could start: .*no power"):
        FedAvg(num_clients=6).start(FakeClients(TWO_GROUPS, faults=faults).grid(), models(0.0), num_rounds=1)
    result = FedAvg(num_clients=6, min_clients=5).start(
        FakeClients(TWO_GROUPS, faults=faults).grid(), models(0.0), num_rounds=1
    )
    assert thetas(result.arrays) == pytest.approx([(0.0 + 0.1 + 10.0 + 10.2 + 10.1) / 10])


# Late, second and foreign replies


def test_a_second_reply_and_a_strangers_are_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = FakeClients([0.0] * 4, faults={(kinds.HELLO, 0, 1): fails}).grid()
    content = RecordDict({kinds.CONFIG: ConfigRecord()})

    def requests() -> list[Request]:
        return [Request(str(node), Message(content, node, kinds.HELLO)) for node in grid.get_node_ids()]

    (stranger, *_) = send(grid, [request.message for request in requests()], 60)
    asked = requests()
    replies = send(grid, [request.message for request in asked], 60)
    found = sort_replies(asked, [*replies, *replies, stranger], lambda _, content: content)
    assert (len(found.ok), len(found.error), found.missing, found.asked, len(found.surplus)) == (3, 1, (), 4, 5)


# Values far above the others'


def test_losses_out_of_all_proportion_are_found_by_hand_computed_bounds() -> None:
    losses = np.array([[1.0, 3.0], [2.0, 0.5], [0.1, 4.0], [301.0, 400.0], [299.0, 400.0], [0.1, 30_001.0]])
    # Worst losses 3, 2, 4, 400, 400, 30001: the lower median is 4.
    assert loss_scale(losses) == 4.0
    np.testing.assert_array_equal(outlier_losses(losses, 3.0, 100.0), [False, False, False, True, False, True])
    assert not outlier_losses(losses, 0.0, 100.0).any()
    assert loss_scale(losses[:2]) == 0.0
    # A model that diverged is infinite for everybody and nobody's fault.
    diverged = np.column_stack([losses[:3], np.full(3, np.inf)])
    assert loss_scale(diverged) == loss_scale(losses[:3])
    assert not outlier_losses(diverged, loss_scale(diverged), 100.0).any()
    assert outlier_losses(np.array([[np.inf, np.inf]]), 1.0, 100.0).all()


def test_updates_out_of_all_proportion_are_found_unless_they_are_all_small() -> None:
    np.testing.assert_array_equal(outlier_updates(np.array([2.0, 2001.0, 2.0]), 1.0), [False, True, False])
    assert not outlier_updates(np.array([1e-9, 1e-9, 0.9]), 1.0).any()
    assert not outlier_updates(np.array([1.0, 1e30]), 1.0).any()
    # Where it is known what others returned, one is enough, and all may be outliers.
    for number in (1, 4):
        for known, is_outlier in ((0.0, False), (1.0, True), (1e27, False)):
            found = outlier_updates(np.full(number, 1e29), 1.0, known)
            assert found.tolist() == [is_outlier] * number


def test_a_weight_that_has_grown_since_the_introduction_is_refused() -> None:
    def claims(number: int) -> object:
        def change(content: RecordDict) -> RecordDict:
            content.metric_records[kinds.METRICS][kinds.NUM_EXAMPLES] = number
            return content

        return change

    for number, refused in ((9, 0), (10, 0), (11, 1)):
        faults = {(kinds.TRAIN, 1, 0): claims(number)}
        _, seen = run(FedAvg(), FakeClients(TWO_GROUPS, faults=faults))  # type: ignore[arg-type]
        assert seen[0].replies["invalid"] == refused


# The real clients

SMALL = ("num_clients=10", "k=2", "task.num_clusters=2", "num_rounds=4", "task.model_options.hidden=[16]")


@pytest.mark.parametrize(
    "fault", ["exception", "huge losses (1e30)", "huge weights (1e30)", "n = 1e9", "reply of an older round"]
)
def test_a_fifth_of_faulty_clients_does_not_keep_clove_from_the_groups(fault: str) -> None:
    outcome = play("clove", [fault], seed=0, more=SMALL)
    assert (outcome.rounds, outcome.ari, outcome.sound, outcome.error) == (4, 1.0, True, "")
    assert outcome.refused > 0
