"""Restarts of CLoVE and IFCA: several attempts, of which the best is continued."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.strategies.base.report import RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.ifca.strategy import IFCA
from florets.strategies.starts.restarts import least_loss, least_share
from florets.task.wire import kinds
from tests.fakes import FakeClients, models, play, thetas

TARGETS = [0.0, 0.4, 10.0, 10.4, 30.0, 30.4]


def test_how_good_a_start_was_by_hand() -> None:
    losses = np.array([[1.0, 2.0, 9.0], [3.0, 2.0, 9.0], [0.5, 4.0, 9.0], [6.0, 5.0, 4.5]])
    assert least_loss(losses) == (1 + 2 + 0.5 + 4.5) / 4
    assert least_share(losses) == 0.25
    assert least_share(losses[:3]) == 0.0
    assert least_loss(np.full((2, 2), np.inf)) == np.inf


# Restarts


@pytest.mark.parametrize("make", [IFCA, CLoVE])
def test_the_best_start_goes_on_as_if_it_had_been_the_only_one(make: Any) -> None:
    clients = FakeClients([0.0, 1.0, 9.0, 10.0])
    strategy = make(restarts=4, restart_rounds=2, first_round="random", seed=3)
    banks: list[list[float]] = []
    details: list[Any] = []

    def note(report: RoundReport, arrays: ArrayRecord) -> None:
        banks.append(thetas(arrays))
        details.append(report.details)

    strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=5, on_round=note)
    # Three attempts that are not continued, of two rounds each, and the five that were asked for.
    assert len(banks) == 3 * 2 + 5
    judged = [places.get("score") for places in details]
    assert [number for number, score in enumerate(judged, 1) if score] == [3, 5, 7, 9]
    scores = [score for score in judged if score]
    best = max(range(4), key=scores.__getitem__)
    assert details[8]["kept"] == best + 1
    assert len({tuple(score) for score in scores}) > 1
    # The score is that of the models at the start's end.
    bank = np.array(banks[2 * best + 1])
    losses = (bank - np.array([[0.0], [1.0], [9.0], [10.0]])) ** 2
    assert scores[best] == pytest.approx([-least_loss(losses), least_share(losses)], rel=1e-4)
    # Every client's choice among these models, trained: what the best start's next round comes to.
    chosen = losses.argmin(axis=1)
    targets = np.array([0.0, 1.0, 9.0, 10.0])
    expected = [np.mean((bank[m] + targets[chosen == m]) / 2) if (chosen == m).any() else bank[m] for m in (0, 1)]
    if make is IFCA:
        assert banks[8] == pytest.approx(expected, rel=1e-5)


def test_one_client_that_lies_about_its_losses_does_not_choose_the_start() -> None:
    def huge(content: Any) -> Any:
        metrics = content.metric_records[kinds.METRICS]
        metrics["losses"] = [1e30] * len(metrics["losses"])
        return content

    def judged(faults: Any) -> list[Any]:
        strategy = IFCA(restarts=2, restart_rounds=2, first_round="random", seed=3)
        seen = play(strategy, FakeClients([0.0, 1.0, 9.0, 10.0, 10.0], faults=faults), 3, 4.0, 6.0)
        assert seen[2].rejected.keys() == ({"4"} if faults else set())
        return [report.details.get("score") for report in seen if "score" in report.details]

    benign, lied = judged({}), judged({(kinds.LOSSES, 3, 4): huge})
    assert benign[0][0] - 10 < lied[0][0] <= 0
    assert lied[1] == pytest.approx(benign[1])
    # CLoVE's own key says who is an outlier, here nobody.
    every = CLoVE(restarts=2, restart_rounds=2, first_round="random", seed=3, outlier_loss=None)
    clients = FakeClients([0.0, 1.0, 9.0, 10.0, 10.0], faults={(kinds.LOSSES, 3, 4): huge})
    assert not play(every, clients, 3, 4.0, 6.0)[2].rejected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("strategy.restarts=2", "num_rounds=5"), r"restarts=2: each attempt has strategy.restart_rounds=5"),
        (("strategy.restarts=2", "k=auto"), "k=auto: attempts with different numbers of models"),
        (("strategy.restarts=2", "first_round=update"), "first_round=update starts from one model"),
        (("strategy.restarts=2", "strategy.probes=1"), "strategy.probes=1: cannot be used with strategy.restarts"),
        (("strategy.restart_rounds=2",), "restart_rounds=2: has an effect only with strategy.restarts>1"),
    ],
)
def test_starts_that_cannot_work_are_refused(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(["strategy=clove", *settings])
