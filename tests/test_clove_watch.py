"""CLoVE's watch after the freeze: who is asked again, who moves, and when the clustering opens."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from florets.engines.local_grid import LocalGrid
from florets.strategies.base.encoding import decode, encode
from florets.strategies.base.report import RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.shared.watch import Departure, Watch
from florets.task.wire import kinds
from tests.fakes import FakeClients, models, thetas

CLIENTS = {f"{model}{letter}": model for model in (0, 1, 2) for letter in "abcde"}


def trained(rng: np.random.Generator, number: int, **higher: float) -> list[tuple[str, Any]]:
    """Updates of a round whose losses fall together, with 10 % of noise; `higher` are factors of single clients."""
    common = 2.0 * 0.9**number
    losses = {key: common * float(np.exp(0.1 * rng.standard_normal())) * higher.get(key, 1.0) for key in CLIENTS}
    return [(key, SimpleNamespace(model=CLIENTS[key], train_loss=loss)) for key, loss in losses.items()]


def settled(seed: int = 0, rounds: int = 8) -> tuple[Watch, np.random.Generator]:
    watch, rng = Watch(), np.random.default_rng(seed)
    for number in range(rounds):
        watch.observe(trained(rng, number), 8)
    return watch, rng


def test_noise_that_all_clients_have_and_a_common_change_are_no_departure() -> None:
    for seed in range(2):
        watch, rng = settled(seed, 40)
        assert watch.departed == {}
        watch.observe(trained(rng, 40, **dict.fromkeys(CLIENTS, 1.3)), 8)
        assert watch.departed == {}
        # No usual change: whatever it is that happened to all of them, it is worth a question.
        watch.observe(trained(rng, 41, **dict.fromkeys(CLIENTS, 9.0)), 8)
        assert watch.departed.keys() == CLIENTS.keys()


def test_a_client_departs_and_is_as_usual_again() -> None:
    watch, rng = settled()
    watch.observe(trained(rng, 8, **{"0a": 4.0}), 8)
    assert watch.departed.keys() == watch.fresh == {"0a"}
    assert not watch.departed["0a"].together
    watch.observe(trained(rng, 9, **{"0a": 4.0}), 8)
    assert watch.departed.keys() == {"0a"}
    assert watch.fresh == set()
    watch.observe(trained(rng, 10), 8)
    assert watch.departed == {}
    assert len(watch.levels["0a"]) == 1


def test_of_a_group_that_departs_the_clients_that_stay_are_not_suspected() -> None:
    watch, rng = settled()
    watch.observe(trained(rng, 8, **{"0a": 6.0, "0b": 6.0, "0c": 6.0, "0d": 6.0}), 8)
    assert watch.departed.keys() == {"0a", "0b", "0c", "0d"}
    assert all(departure.together for departure in watch.departed.values())
    assert watch.fresh == watch.departed.keys()


def test_a_client_is_watched_once_it_has_trained_its_model_for_a_while() -> None:
    watch, rng = settled(rounds=2)
    watch.observe(trained(rng, 2, **{"0a": 9.0}), 8)
    assert watch.departed == {}
    watch, rng = settled()
    watch.forget("0a")
    watch.observe(trained(rng, 8, **{"0a": 9.0}), 8)
    assert watch.departed == {}


def test_what_fits_nobody_is_asked_more_and_more_seldom() -> None:
    departure = Departure(model=0, expected=np.log(0.1), together=False)
    gaps = []
    for _ in range(4):
        departure.answered(np.array([5.0, 4.0, 6.0]), 0)
        gaps.append(departure.due)
    assert gaps == [1, 2, 4, 8]
    assert departure.unfit == 4
    departure.answered(np.array([5.0, 0.3, 6.0]), 0)
    assert departure.unfit == 0


@pytest.mark.parametrize(("together", "answers", "opens"), [(True, 1, True), (False, 1, False), (False, 2, True)])
def test_a_group_opens_the_clustering_at_once_and_single_clients_when_asked_twice(
    together: bool, answers: int, opens: bool
) -> None:
    watch = Watch(departed={key: Departure(0, np.log(0.1), together) for key in "ab"})
    for departure in watch.departed.values():
        for _ in range(answers):
            departure.answered(np.array([5.0, 4.0]), 0)
    assert watch.opens() is opens
    del watch.departed["b"]
    assert not watch.opens()


def test_the_watch_comes_back_from_a_checkpoint_as_it_was() -> None:
    watch, rng = settled()
    watch.observe(trained(rng, 8, **{"0a": 4.0}), 8)
    assert watch.departed
    arrays: dict[str, Any] = {}
    again = decode(encode(watch, arrays), arrays)
    assert vars(again) == vars(watch)


class Drifting(FakeClients):
    """Clients whose targets are others from a round on."""

    later: tuple[int, dict[int, float]] = (10**9, {})

    def _handle(self, message: Any, context: Any) -> Any:
        if message.content.config_records[kinds.CONFIG].get(kinds.SERVER_ROUND, 0) >= self.later[0]:
            self.targets = [self.later[1].get(client, target) for client, target in enumerate(self.targets)]
        return super()._handle(message, context)


# Two groups of four, not quite alike.
TARGETS = [0.0, 0.1, -0.1, 0.2, 10.0, 10.1, 9.9, 10.2]


def play(
    clients: FakeClients, rounds: int = 20, k: int = 2, **own: Any
) -> tuple[list[RoundReport], ArrayRecord, CLoVE]:
    strategy = CLoVE(k=k, first_round="evaluate", stability_rounds=2, **{"watch": 8.0, **own})
    reports: list[RoundReport] = []
    grid: LocalGrid = clients.grid()
    starts = models(*(1.0, 9.0, 21.0)[:k])
    result = strategy.start(grid, starts, num_rounds=rounds, on_round=lambda report, _: reports.append(report))
    return reports, result.arrays, strategy


def test_a_client_that_changes_groups_is_asked_alone_and_moves_in_the_next_round() -> None:
    clients = Drifting(TARGETS)
    clients.later = (9, {0: 10.05})
    reports, arrays, _ = play(clients, rounds=12, loss_batch=3)
    assert [report.assignment["0"] for report in reports[7:11]] == [0, 0, 1, 1]
    assert reports[8].details["watch"] == {"departed": ["0"]}
    assert reports[9].details["watch"] == {"asked": ["0"], "moved": ["0"], "opened": False}
    assert clients.asked(kinds.LOSSES, 10) == [0]
    assert not any(clients.asked(kinds.LOSSES, number) for number in (*range(5, 10), 11, 12))
    assert all("watch" not in report.details for report in (*reports[:8], *reports[10:]))
    # Where it belongs is decided on all of its samples.
    config = clients.configs[clients.seen.index((kinds.LOSSES, 10, 0))]
    assert config[kinds.LOSS_BATCH] == 0
    # What it trained on its new data before it moved is in no model.
    assert thetas(arrays)[0] == pytest.approx(np.mean(TARGETS[1:4]), abs=0.01)


def test_a_client_that_no_model_fits_stays_where_it_is_and_is_asked_again() -> None:
    clients = Drifting(TARGETS)
    # Nearer to the other group's model, which takes back next to nothing of the rise.
    clients.later = (9, {0: 60.0})
    reports, _, strategy = play(clients, rounds=12)
    assert [report.assignment["0"] for report in reports[7:]] == [0] * 5
    assert reports[9].details["watch"] == {"asked": ["0"], "moved": [], "opened": False}
    assert [clients.asked(kinds.LOSSES, number) for number in (10, 11, 12)] == [[0], [0], []]
    assert strategy.state.watch.departed["0"].unfit == 2


@pytest.mark.slow
def test_where_a_whole_group_departs_its_updates_count() -> None:
    clients = Drifting(TARGETS)
    clients.later = (12, dict.fromkeys(range(4), -20.0))
    _, arrays, strategy = play(clients, rounds=12)
    assert strategy.state.watch.fresh == {"0", "1", "2", "3"}
    # Half of the way from their old mean to the new one.
    assert thetas(arrays)[0] == pytest.approx((np.mean(TARGETS[:4]) - 20) / 2, abs=0.01)


@pytest.mark.slow
def test_nobody_is_asked_without_the_watch_or_without_a_change() -> None:
    for watch, later in ((None, {0: 10.05}), (8.0, {})):
        clients = Drifting(TARGETS)
        clients.later = (12, later)
        play(clients, watch=watch)
        assert not any(clients.asked(kinds.LOSSES, number) for number in range(5, 21))


@pytest.mark.slow
def test_a_group_that_no_model_fits_opens_the_clustering_which_is_frozen_anew() -> None:
    clients = Drifting([*TARGETS, 20.0, 20.1, 19.9, 20.2])
    # Half of the first group and half of the second become a group that no model knows; the third joins the second.
    clients.later = (12, {2: -20.0, 3: -20.1, 6: -19.9, 7: -20.2, 8: 10.0, 9: 10.1, 10: 9.9, 11: 10.2})
    reports, _, strategy = play(clients, rounds=26, k=3)
    phases = [report.phase for report in reports]
    opened = [report.server_round for report in reports if dict(report.details.get("watch", {})).get("opened")]  # type: ignore[call-overload]
    assert len(opened) == 1
    assert 13 <= opened[0] <= 15
    # As many equal assignments as at first.
    assert phases[opened[0] - 1 : opened[0] + 2] == ["clustering", "clustering", "stable"]
    assert phases[-1] == "stable"
    assert strategy.state.frozen is not None
    last = reports[-1].assignment
    assert len({last[key] for key in "2367"}) == 1
    assert len({last[key] for key in ("0", "1")}) == len({last[key] for key in ("4", "5", "8", "11")}) == 1
    assert len(set(last.values())) == 3


@pytest.mark.slow
def test_a_departed_client_whose_loss_vector_is_lost_is_asked_again() -> None:
    def wrong(_: RecordDict) -> RecordDict:
        return RecordDict({kinds.METRICS: MetricRecord({kinds.MODEL_LOSSES: [1.0], kinds.NUM_EXAMPLES: 10})})

    def fails(_: RecordDict) -> RecordDict:
        raise RuntimeError("broken")

    clients = Drifting(TARGETS, faults={(kinds.LOSSES, 13, 0): wrong, (kinds.LOSSES, 14, 0): fails})
    clients.later = (12, {0: 10.05})
    reports, _, _ = play(clients)
    assert [report.assignment["0"] for report in reports[11:16]] == [0, 0, 0, 1, 1]
    assert reports[12].replies["invalid"] == 1
    assert reports[13].replies["error"] == 1
