"""Anchors that fail, leave or never answer: phase 1 of mixed regression waits, goes on without them, or ends."""

import logging
from functools import cache

import numpy as np
import pytest
from flwr.app import RecordDict

from florets.strategies.base import federation
from florets.strategies.base.federation import FederationError
from florets.strategies.two_phase.messages import MOMENT_DESCENT
from florets.strategies.two_phase.strategy import TwoPhase
from tests.mixed_regression import Outcome, Watched, run

STOPPING = ("strategy.anchors=5", "strategy.moment_rounds=8", "strategy.delta=2.0", "strategy.epsilon=0.12")
SMALL = ("strategy.anchors=5", "num_clients=12", "strategy.moment_rounds=3", "num_rounds=1")


def lost(_: RecordDict) -> RecordDict:
    raise RuntimeError("lost")


def silent(*anchors: int, rounds: range) -> Watched:
    return Watched({(MOMENT_DESCENT, r, anchor): lost for r in rounds for anchor in anchors})


def anchors(strategy: TwoPhase) -> list[int]:
    return [int(anchor.key) for anchor in strategy.state.descent.anchors]


@cache
def undisturbed() -> Outcome:
    """Return the small run in which every anchor answers."""
    return run(*SMALL)


@pytest.mark.slow
def test_the_last_anchor_that_moves_cannot_end_the_run_by_failing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    whole = run(*STOPPING, "num_rounds=2")
    last = anchors(whole.strategy)[0]
    watched = silent(last, rounds=range(2, 9))
    found = run(*STOPPING, "num_rounds=2", "round_tries=2", watched=watched)
    ends = [report.phase for report in found.reports].index("refine")
    report = found.reports[ends - 1]
    assert (report.details["anchors_stopped"], report.tries, report.train_loss) == (4, 2, None)
    assert found.banks[ends - 1].tobytes() == found.banks[ends - 2].tobytes()
    assert report.assignment == found.reports[ends - 2].assignment
    assert [report.phase for report in found.reports[ends:]] == ["refine"] * (10 - ends)
    assert found.errors[-1] < found.errors[ends - 1]
    assert f"round {ends} returned a valid update from none of 1 asked" in caplog.text
    assert "Phase 1 ends here, with the estimates of the 5 of 5 anchors that were heard" in caplog.text


@pytest.mark.parametrize(("heard", "answering"), [(2, 0), (3, 0), (5, 2)])
def test_anchors_below_the_quorum_end_phase_1_once_as_many_as_models_were_heard(heard: int, answering: int) -> None:
    some = anchors(undisturbed().strategy)
    faults = {
        **silent(*some[heard:], rounds=range(1, 2)).faults,
        **silent(*some[answering:], rounds=range(2, 4)).faults,
    }
    if heard == 2:
        with pytest.raises(FederationError, match="round 2 returned a valid update from none of 5 asked"):
            run(*SMALL, "quorum=0.4", watched=Watched(faults))
        return
    found = run(*SMALL, watched=Watched(faults))
    assert [report.phase for report in found.reports] == ["moment_descent"] * 2 + ["refine"] * 2
    assert found.banks[1].tobytes() == found.banks[0].tobytes() != found.banks[2].tobytes()


@pytest.mark.parametrize("come_back", [True, False])
def test_anchors_offline_are_waited_for_although_other_clients_are_online(
    come_back: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    whole = undisturbed()
    away: set[int] = set()

    class Gone(Watched):
        def grid(self, num_clients: int):  # type: ignore[no-untyped-def]
            grid = super().grid(num_clients)
            nodes = grid.get_node_ids
            grid.get_node_ids = lambda: [node for node in nodes() if node not in away]  # type: ignore[method-assign]
            return grid

    naps = 0

    def nap(seconds: float) -> None:
        nonlocal naps
        naps += 1
        if come_back and naps == 3:
            away.clear()

    # Nothing but waiting takes time, half a second a nap.
    monkeypatch.setattr(federation.time, "monotonic", lambda: 0.5 * naps)
    monkeypatch.setattr(federation.time, "sleep", nap)
    plan = TwoPhase.plan

    def leave(self, context):  # type: ignore[no-untyped-def]
        if context.server_round == 2 and not naps:
            away.update(anchor.node_id for anchor in self.state.descent.anchors)
            self.federation.refresh(context.grid, context.config)
        return plan(self, context)

    monkeypatch.setattr(TwoPhase, "plan", leave)
    found = run(*SMALL, "round_tries=2", "start_timeout=5", watched=Gone())
    assert "round 2: of the anchors none that still moves" in caplog.text
    assert "is online: waiting up to start_timeout=5 s for one" in caplog.text
    if come_back:
        assert [bank.tobytes() for bank in found.banks] == [bank.tobytes() for bank in whole.banks]
        return
    # Ten looks each try; then the clients that are there refine.
    assert 15 < naps < 25
    assert [report.phase for report in found.reports] == ["moment_descent"] * 2 + ["refine"] * 2
    assert (found.reports[1].participants, found.reports[1].tries) == ((), 2)
    assert len(found.reports[2].participants) == 12 - 5


def test_an_anchor_that_never_answered_is_in_no_group() -> None:
    whole = undisturbed()
    mute = anchors(whole.strategy)[1]
    found = run(*SMALL, watched=silent(mute, rounds=range(1, 4)))
    descent = found.strategy.state.descent
    assert descent.groups[1] == -1
    others = np.array([0, 2, 3, 4])
    assert set(descent.groups[others]) == {0, 1, 2}
    for model in range(3):
        mean = descent.estimates[others][descent.groups[others] == model].mean(axis=0)
        assert found.banks[2][model] == pytest.approx(mean, abs=1e-6)
    assert f"{mute:02}" not in found.reports[2].assignment
    # Heard in the last round alone, it is grouped.
    late = run(*SMALL, watched=silent(mute, rounds=range(1, 3)))
    assert (late.strategy.state.descent.groups >= 0).all()


def test_fewer_anchors_heard_than_models_are_grouped_with_the_others_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    some = anchors(run(*SMALL).strategy)
    assert caplog.text == ""
    found = run(*SMALL, "quorum=0.4", watched=silent(*some[2:], rounds=range(1, 4)))
    assert "round 1: 2 of 5 anchors were heard so far, fewer than k=3" in caplog.text
    assert sorted(set(found.strategy.state.descent.groups)) == [0, 1, 2]
