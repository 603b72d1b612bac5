"""FlexCFL against fake clients: cold starts, groups that stay, newcomers, migration, and what goes wrong."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, RecordDict

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.strategies.base.federation import FederationError
from florets.strategies.flexcfl.messages import LABELS
from florets.strategies.flexcfl.strategy import FlexCFL
from florets.task.wire import kinds
from tests.fakes import FakeClients, steps, thetas
from tests.test_baselines import lost, play

# From a model of 0 two clients move down and two move up.
TARGETS = [-1.0, -3.0, 10.0, 12.0]
SEED = 0


def flexcfl(**settings: Any) -> FlexCFL:
    return FlexCFL(num_outputs=2, **settings)


def test_groups_come_from_the_directions_of_cold_starts_and_stay() -> None:
    clients = FakeClients(TARGETS, examples=[10, 30, 10, 10])
    strategy = flexcfl(cold_start_steps=7)
    seen = play(strategy, clients, 3, 0.0, 0.0)
    assert [report.phase for report in seen] == ["clustering", "stable", "stable"]
    assert all(report.assignment == {"0": 0, "1": 0, "2": 1, "3": 1} for report in seen)
    assert clients.asked(kinds.TRAIN_ESTIMATE) == clients.asked(kinds.TRAIN_ESTIMATE, 1) == [0, 1, 2, 3]
    assert [report.details for report in seen] == [{"cold_started": 4.0}, {}, {}]
    cold = [config for (kind, _, _), config in zip(clients.seen, clients.configs, strict=True) if "estimate" in kind]
    assert {config["local-steps"] for config in cold} == {7}
    # A group starts from the plain mean of its cold starts, -2 and 11, and nears the mean by examples, -2.5 and 11.
    assert thetas(strategy.context.models.record) == pytest.approx([-2.5 + 0.5 / 8, 11.0])


@pytest.mark.parametrize("measure", ["edc", "madc"])
def test_some_clients_form_the_groups_and_the_others_join_when_they_take_part(measure: Any) -> None:
    clients = FakeClients([-1.0, -3.0, 10.0, 12.0, -2.0, 11.0])
    seen = play(flexcfl(measure=measure, cold_start_scale=1, fraction_train=0.5, seed=SEED), clients, 6, 0.0, 0.0)
    first = clients.asked(kinds.TRAIN_ESTIMATE, 1)
    founders, participants = first[:2], {int(key) for key in seen[0].participants}
    # The seed draws one founder of each group, who are cold-started first, and then whoever else takes part.
    assert len({founder in (0, 1, 4) for founder in founders}) == 2
    assert set(first[2:]) == participants - set(founders)
    # Each client is cold-started once, be it a founder or a newcomer.
    assert sorted(clients.asked(kinds.TRAIN_ESTIMATE)) == [0, 1, 2, 3, 4, 5]
    assigned = seen[-1].assignment
    assert len({assigned[key] for key in "014"}) == len({assigned[key] for key in "235"}) == 1
    assert assigned["0"] != assigned["2"]


def test_a_cold_start_that_is_lost_is_asked_for_again_when_the_client_takes_part() -> None:
    lost_starts = {(kinds.TRAIN_ESTIMATE, server_round, 3): lost for server_round in (1, 2)}
    clients = FakeClients(TARGETS, faults=lost_starts)
    seen = play(flexcfl(), clients, 3, 0.0, 0.0)
    assert "3" not in seen[1].assignment
    assert clients.asked(kinds.TRAIN, 2) == [0, 1, 2]
    assert seen[2].assignment == {"0": 0, "1": 0, "2": 1, "3": 1}


def test_groups_need_a_quorum_of_cold_starts() -> None:
    faults = {(kinds.TRAIN_ESTIMATE, 1, client): lost for client in (1, 2, 3)}
    with pytest.raises(FederationError, match=r"valid cold start from 1 of 4 asked, and needs 2"):
        play(flexcfl(quorum=0.5, round_tries=1), FakeClients(TARGETS, faults=faults), 1, 0.0, 0.0)


def test_a_cold_start_with_values_beyond_reason_founds_no_group() -> None:
    def huge(content: RecordDict) -> RecordDict:
        content.array_records[kinds.ARRAYS]["theta"] = Array(np.array([1e30], dtype=np.float32))
        return content

    clients = FakeClients(TARGETS, faults={(kinds.TRAIN_ESTIMATE, 1, 3): huge})
    strategy = flexcfl()
    play(strategy, clients, 1, 0.0, 0.0)
    # Group 1 starts from client 2 alone, at 10; client 3's second cold start is refused, too, though it comes alone.
    assert max(thetas(strategy.context.models.record)) == pytest.approx(10)
    assert "3" not in strategy.assignment


def test_a_client_whose_labels_shift_is_cold_started_again() -> None:
    clients = FakeClients(TARGETS)
    clients.labels = lambda client, server_round: [1, 9] if client == 1 and server_round >= 2 else [9, 1]
    strategy = flexcfl(migration=0.2)

    def moved(content: RecordDict) -> RecordDict:
        """Client 1's data are others by now: its cold start goes up."""
        content.array_records[kinds.ARRAYS]["theta"] = Array(np.array([9.0], dtype=np.float32))
        return content

    clients.faults = {(kinds.TRAIN_ESTIMATE, server_round, 1): moved for server_round in (2, 3)}
    seen = play(strategy, clients, 3, 0.0, 0.0)
    assert [report.assignment["1"] for report in seen] == [0, 1, 1]
    # Only once: from then on its shifted labels are what it is compared with.
    assert [clients.asked(kinds.TRAIN_ESTIMATE, server_round) for server_round in (2, 3)] == [[1], []]
    assert [report.details.get("migrated") for report in seen] == [None, 1.0, None]
    assert {report.phase for report in seen} == {"clustering"}


def test_a_migration_that_is_lost_leaves_the_client_in_its_group_until_it_comes() -> None:
    clients = FakeClients(TARGETS, faults={(kinds.TRAIN_ESTIMATE, 2, 1): lost, (LABELS, 1, 0): lost})
    clients.labels = lambda client, server_round: [1, 9] if client == 1 and server_round >= 2 else [9, 1]
    seen = play(flexcfl(migration=0.2), clients, 3, 0.0, 0.0)
    assert clients.asked(kinds.TRAIN, 2) == [0, 1, 2, 3]
    assert [clients.asked(kinds.TRAIN_ESTIMATE, server_round) for server_round in (2, 3)] == [[1], [1]]
    assert seen[2].assignment == {"0": 0, "1": 0, "2": 1, "3": 1}


def test_without_migration_nobody_is_asked_for_labels() -> None:
    clients = FakeClients(TARGETS)
    play(flexcfl(), clients, 2, 0.0, 0.0)
    assert clients.asked(LABELS) == []


def test_groups_move_towards_each_other_at_the_inter_group_rate() -> None:
    strategy = flexcfl(inter_group_rate=0.5)
    play(strategy, FakeClients(TARGETS), 1, 0.0, 0.0)
    # FedAvg comes to -2 and 11; weights of the others are 0.5 / 11 and 0.5 / 2.
    low, high = (-2 + 0.5) / (1 + 0.5 / 11), (11 - 0.5) / (1 + 0.25)
    assert thetas(strategy.context.models.record) == pytest.approx([low, high])
    # A counter is no parameter: cold starts count by 100, training by 1.
    assert steps(strategy.context.models.record) == [101, 301]


def test_gradients_can_be_averaged_after_the_cold_start() -> None:
    from florets.strategies.base.averaging import GradientAveraging

    strategy = flexcfl(averaging=GradientAveraging(0.25))
    play(strategy, FakeClients(TARGETS), 1, 0.0, 0.0)
    assert thetas(strategy.context.models.record) == pytest.approx([-2.0, 11.0])


def test_shared_layers_start_from_the_mean_of_all_cold_starts() -> None:
    clients = FakeClients(TARGETS)
    play(flexcfl(shared_layers=["theta"]), clients, 1, 0.0, 0.0)
    sent = [theta for (kind, _, _), theta in zip(clients.seen, clients.received, strict=True) if kind == kinds.TRAIN]
    assert sent == pytest.approx([4.5] * 4)


def test_a_founder_that_is_cold_started_a_second_time_counts_once() -> None:
    clients = FakeClients(TARGETS)
    lost_once = iter([lost])
    clients.faults = {(kinds.TRAIN_ESTIMATE, 1, 3): lambda content: next(lost_once, lambda same: same)(content)}
    seen = play(flexcfl(), clients, 1, 0.0, 0.0)
    assert seen[0].assignment["3"] == 1
    assert seen[0].details == {"cold_started": 4.0}


def test_migration_needs_labels() -> None:
    with pytest.raises(ConfigError, match=r"strategy.migration=0.2: compares counts of labels, and task.loss="):
        compose(["experiment=clove/linear", "strategy=flexcfl", "strategy.migration=0.2"])
