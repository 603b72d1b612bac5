"""Two-phase mixed regression: both phases on the real clients of a small problem whose true models are known."""

import itertools
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import yaml
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.schema import Config, as_plain
from florets.conf.validate import checked_config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.federation import FederationError
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport
from florets.strategies.two_phase import moment_algebra
from florets.strategies.two_phase.messages import MOMENT_DESCENT, MOMENTS, SUBSPACE, LocalFactors
from florets.strategies.two_phase.strategy import TwoPhase
from florets.task.wire import bank, kinds
from tests import own_functions
from tests.fakes import FakeClients, asked_for, lost, models, thetas

BASE = (
    "task=linear k=3 num_clients=24 num_rounds=2 task.num_clusters=3 task.loss=half_squared_error "
    "task.data=tests.own_functions:mixed_regression task.partition=tests.own_functions:in_order "
    "strategy=two_phase train.optimizer=sgd train.learning_rate=0.1 "
    "train.local_epochs=5 train.batch_size=100"
)

Fault = Callable[[RecordDict], RecordDict]


@dataclass
class Watched:
    """`faults[(kind, round, client)]` changes a reply; what it raises is the client's failure."""

    faults: Mapping[tuple[str, int, int], Fault] = field(default_factory=dict)
    seen: list[tuple[str, int, int, RecordDict]] = field(default_factory=list)

    def grid(self, num_clients: int) -> LocalGrid:
        return LocalGrid(cast(ClientApp, self._handle), num_clients)

    def asked(self, kind: str, server_round: int) -> list[int]:
        return [c for k, r, c, _ in self.seen if (k, r) == (kind, server_round)]

    def sent(self, kind: str, server_round: int, client: int) -> list[RecordDict]:
        return [content for k, r, c, content in self.seen if (k, r, c) == (kind, server_round, client)]

    def _handle(self, message: Message, context: Context) -> Message:
        client, kind = int(context.node_config["partition-id"]), asked_for(message)
        server_round = int(message.content.config_records[kinds.CONFIG].get(kinds.SERVER_ROUND, 0))  # type: ignore[arg-type]
        self.seen.append((kind, server_round, client, message.content))
        reply = app(message, context)
        fault = self.faults.get((kind, server_round, client))
        return Message(fault(reply.content), reply_to=message) if fault else reply


@dataclass
class Outcome:
    strategy: TwoPhase
    reports: list[RoundReport]
    banks: list[np.ndarray]
    errors: list[float]
    arrays: ArrayRecord


def run(*overrides: str, watched: Watched | None = None) -> Outcome:
    """Run the small problem; `errors` are the distances to the true models after each round."""
    config = _config(overrides)
    problem, reports, banks = build_task(config), [], []

    def on_round(report: RoundReport, arrays: ArrayRecord) -> None:
        reports.append(report)
        banks.append(Models(arrays).bank)

    strategy = build_strategy(config, problem)
    assert isinstance(strategy, TwoPhase)
    grid = (watched or Watched()).grid(config.num_clients)
    settings = message_settings(config, problem)
    result = strategy.start(grid, build_models(config, problem), config.num_rounds, None, settings, on_round=on_round)
    truth = problem.data.true_models
    assert truth is not None
    return Outcome(strategy, reports, banks, [distance(bank, truth) for bank in banks], result.arrays)


def distance(bank: np.ndarray, truth: np.ndarray) -> float:
    """The paper's d: over the permutations of the models, the least of the largest errors."""
    errors = np.linalg.norm(bank[:, None] - truth[None], axis=2)
    return min(max(errors[order, range(len(truth))]) for order in itertools.permutations(range(len(truth))))


@cache
def _base() -> dict[str, Any]:
    return as_plain(compose(BASE.split(" ")))


def _config(overrides: tuple[str, ...]) -> Config:
    """Compose once and lay the keys over it: Hydra takes longer than the runs."""
    values = deepcopy(_base())
    for override in overrides:
        *groups, name = override.partition("=")[0].split(".")
        place = values
        for group in groups:
            place = place[group]
        place[name] = yaml.safe_load(override.partition("=")[2])
    values["task"]["data_options"] = {"clients": values["num_clients"]}
    config, problems = checked_config(values)
    assert config is not None
    assert not problems
    return config


ANCHORS_5 = ("strategy.anchors=5", "num_clients=12")
"""A smaller federation, for what does not depend on finding the models."""


@pytest.mark.slow
def test_coarse_models_after_phase_1_and_the_true_ones_after_phase_2():
    watched = Watched()
    found = run("num_clients=60", "num_rounds=15", watched=watched)
    assert [report.phase for report in found.reports] == ["moment_descent"] * 5 + ["refine"] * 15
    assert found.errors[4] < 0.9 < 1.2 < found.errors[0]
    assert found.errors[-1] < 0.1
    assert found.strategy.assignment.keys() == {f"{i:02}" for i in range(60)}
    assert len({(i % 3, found.strategy.assignment[f"{i:02}"]) for i in range(60)}) == 3
    # Phase 1: 10 anchors, T1 = 4 exchanges with everybody, whatever the number of anchors.
    assert len(watched.asked(SUBSPACE, 1)) == 4 * 60
    assert len(watched.asked(MOMENT_DESCENT, 1)) == 10
    assert len(found.reports[4].assignment) == 10
    assert "subspace" in found.reports[0].seconds


def test_fresh_clients_are_asked_once_and_are_no_anchors():
    watched = Watched()
    run(
        "strategy.fresh=true",
        "strategy.subspace_clients=5",
        "strategy.moment_rounds=3",
        *ANCHORS_5[:1],
        watched=watched,
    )
    asked = [set(watched.asked(SUBSPACE, r)) for r in (1, 2, 3)]
    anchors = set(watched.asked(MOMENT_DESCENT, 1))
    assert [len(group) for group in asked] == [5, 5, 5]
    assert len(set.union(anchors, *asked)) == 5 + 15
    assert anchors == set(watched.asked(MOMENT_DESCENT, 3))
    assert watched.asked(kinds.TRAIN_SELECT, 4) == list(range(24))


def test_anchors_need_enough_examples_and_there_must_be_k_of_them():
    with pytest.raises(
        FederationError, match=r"0 of 12 clients have the 41 examples .* lower strategy.min_anchor_examples"
    ):
        run("num_clients=12", "strategy.min_anchor_examples=41")
    clients = FakeClients([0.0, 1.0, 2.0, 3.0], examples=[1, 9, 1, 9])
    with pytest.raises(FederationError, match="2 of 4 clients have the 2 examples"):
        TwoPhase().start(clients.grid(), models(0.0, 1.0, 2.0), num_rounds=1)
    clients = FakeClients([0.0, 1.0])
    with pytest.raises(ValueError, match="1 anchors cannot be grouped into k=2"):
        TwoPhase(anchors=1).start(clients.grid(), models(0.0, 1.0), num_rounds=1)
    assert clients.seen == []
    TwoPhase(moment_rounds=0, anchors=1).start(clients.grid(), models(0.0, 1.0), num_rounds=1)


def test_an_invalid_term_is_left_out_and_none_at_all_ends_the_run():
    def not_a_number(content: RecordDict) -> RecordDict:
        terms = content.array_records[kinds.ARRAYS]["terms"].numpy().copy()
        terms[0, 0, 0] = np.nan
        content[kinds.ARRAYS] = ArrayRecord({"terms": Array(terms)})
        return content

    found = run(*ANCHORS_5, watched=Watched({(SUBSPACE, 1, 7): not_a_number}))
    assert found.reports[0].replies["invalid"] == 4
    with pytest.raises(FederationError, match="round 1 returned a valid term of the moments from none of 12 asked"):
        run(*ANCHORS_5, watched=Watched({(SUBSPACE, 1, c): lost for c in range(12)}))


@pytest.mark.parametrize(("mode", "kind"), [("iteration", SUBSPACE), ("direct", MOMENTS)])
def test_a_subspace_below_the_quorum_is_found_once_more(mode, kind):
    shared = (*ANCHORS_5, "strategy.moment_rounds=1", "num_rounds=1", f"strategy.subspace={mode}", "quorum=0.5")
    calls = dict.fromkeys(range(7), 0)

    def at_first(client):
        def once(content: RecordDict) -> RecordDict:
            calls[client] += 1
            return lost(content) if calls[client] == 1 else content

        return once

    found = run(*shared, watched=Watched({(kind, 1, c): at_first(c) for c in calls}))
    assert [report.tries for report in found.reports] == [2, 1]
    assert found.banks[0].tobytes() == run(*shared).banks[0].tobytes()
    with pytest.raises(FederationError, match=r"round 1 returned a valid .* from 5 of 12 asked, and needs 6"):
        run(*shared, watched=Watched({(kind, 1, c): lost for c in calls}))


def test_in_the_papers_average_those_that_chose_another_model_hold_it_in_place():
    clients = FakeClients([0.0, 10.0], examples=[10, 30])
    strategy = TwoPhase(moment_rounds=0)
    found = strategy.start(clients.grid(), models(2.0, 8.0), num_rounds=1)
    # Client 0 moves model 0 from 2 to 1, client 1 model 1 from 8 to 9: by a quarter and three quarters of that.
    assert thetas(found.arrays) == [1.75, 8.75]
    other = TwoPhase(moment_rounds=0, weighting="examples")
    assert thetas(other.start(clients.grid(), models(2.0, 8.0), num_rounds=1).arrays) == [1.0, 9.0]


def mean_of_pairs(moments: np.ndarray) -> np.ndarray:
    """Return the mean of a client's ordered pairs of different moments (n, d), as products."""
    n, total = len(moments), moments.sum(axis=0)
    return (np.outer(total, total) - moments.T @ moments) / (n * (n - 1))


def moved(theta: np.ndarray, anchor: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Phase 1, l. 9 to 13, with x (M, n, d) and y (M, n), and our rules for sigma and its vector's sign."""
    moments = (y - x @ theta)[..., None] * x
    basis = np.linalg.svd(np.mean([mean_of_pairs(one) for one in moments], axis=0))[0][:, :3]
    own = moments[anchor] @ basis
    vectors, values, _ = np.linalg.svd(mean_of_pairs(own))
    sign = 1 if vectors[:, 0] @ own.mean(axis=0) >= 0 else -1
    return theta + sign * basis @ vectors[:, 0] * np.sqrt(values[0]) / 2


def refined(theta: np.ndarray, x: np.ndarray, y: np.ndarray, eta: float, solver: str) -> np.ndarray:
    """Phase 2, l. 6 to 9, with s = 5 local steps or the proximal problem's solution."""
    local, n = np.repeat(theta[None], len(x), axis=0), y.shape[1]
    for own, one, target in zip(local, x, y, strict=True):
        z = np.linalg.norm(target[:, None] - one @ theta.T, axis=0).argmin()
        gram, mean = one.T @ one / n, one.T @ target / n
        for _ in range(5 if solver == "fedavg" else 0):
            own[z] -= eta * (gram @ own[z] - mean)
        if solver == "fedprox":
            own[z] = np.linalg.solve(gram + np.eye(len(gram)) / eta, mean + theta[z] / eta)
    return local.mean(axis=0)


@pytest.mark.parametrize("solver", ["fedavg", "fedprox"])
def test_both_phases_are_those_of_a_reference_in_numpy(solver):
    watched, rate = Watched(), 0.5
    settings = ("strategy.moment_rounds=2", f"strategy.local_solver={solver}")
    settings = (*ANCHORS_5, *settings, "strategy.subspace=direct", f"train.learning_rate={rate}")
    found = run(*settings, watched=watched)
    data = own_functions.mixed_regression(None, 0, 3, clients=12)
    x, y = data.x_train.reshape(12, 40, -1).astype(float), data.y_train.reshape(12, 40).astype(float)
    anchors = sorted(watched.asked(MOMENT_DESCENT, 1))
    (first,) = bank.models(watched.sent(MOMENT_DESCENT, 1, anchors[0])[0]["arrays"])
    theta, expected = np.repeat(first["1.weight"].numpy().astype(float), len(anchors), axis=0), []
    for report in found.reports[:2]:
        theta = np.array([moved(one, anchor, x, y) for one, anchor in zip(theta, anchors, strict=True)])
        groups = np.array([report.assignment[f"{anchor:02}"] for anchor in anchors])
        expected.append([theta[groups == group].mean(axis=0) for group in range(3)])
    for _ in range(2):
        expected.append(refined(np.array(expected[-1]), x, y, rate, solver))
    assert np.array(found.banks) == pytest.approx(np.array(expected), abs=1e-5)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def pair_matrix(rows: np.ndarray) -> np.ndarray:
    """Return the mean over all ordered pairs of different rows, as the definition has it."""
    n = len(rows)
    return sum(np.outer(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def span(basis: np.ndarray) -> np.ndarray:
    return basis @ basis.T


@pytest.mark.parametrize("size", [12, 150])  # Formed, and as an operator.
def test_the_direct_basis_spans_the_first_left_singular_vectors_of_the_weighted_mean(size: int):
    draw, local, matrices, weights = rng(), [], [], np.array([4.0, 3.0, 6.0])
    directions = 3 * draw.standard_normal((2, size)) / np.sqrt(size)
    for n in (4, 3, 6):
        rows = draw.standard_normal((n, 2)) @ directions + draw.choice([-2, 2]) * directions[n % 2]
        local.append(LocalFactors(rows[None], n))
        matrices.append(pair_matrix(rows))
    mean = sum(w * y for w, y in zip(weights / weights.sum(), matrices, strict=True))
    (found,) = moment_algebra.leading_bases(local, weights, 2, rng())
    assert span(found) == pytest.approx(span(np.linalg.svd(mean)[0][:, :2]), abs=1e-8)
    again = moment_algebra.leading_bases(local, weights, 2, rng())
    assert np.array_equal(found, again[0])


def test_anchors_are_grouped_into_exactly_k():
    estimates = np.array([[0.0], [0.3], [5.0], [9.0], [5.2]])
    assert moment_algebra.group_exactly(estimates, 3).tolist() == [0, 0, 1, 2, 1]
    assert moment_algebra.group_exactly(np.zeros((4, 2)), 3).max() == 2  # All alike: still three groups.
    assert moment_algebra.group_exactly(estimates[:1], 1).tolist() == [0]


SMALL = ("strategy.anchors=5", "num_clients=12", "strategy.moment_rounds=3", "num_rounds=1")


def silent(*anchors: int, rounds: range) -> Watched:
    return Watched({(MOMENT_DESCENT, r, anchor): lost for r in rounds for anchor in anchors})


def anchors(strategy: TwoPhase) -> list[int]:
    return [int(anchor.key) for anchor in strategy.state.anchors]


@cache
def undisturbed() -> Outcome:
    """Return the small run in which every anchor answers."""
    return run(*SMALL)


def test_an_anchor_that_never_answered_is_in_no_group() -> None:
    whole = undisturbed()
    mute = anchors(whole.strategy)[1]
    found = run(*SMALL, watched=silent(mute, rounds=range(1, 4)))
    state = found.strategy.state
    assert state.groups[1] == -1
    others = np.array([0, 2, 3, 4])
    assert set(state.groups[others]) == {0, 1, 2}
    for model in range(3):
        mean = state.estimates[others][state.groups[others] == model].mean(axis=0)
        assert found.banks[2][model] == pytest.approx(mean, abs=1e-6)
    assert f"{mute:02}" not in found.reports[2].assignment
    # Heard in the last round alone, it is grouped.
    late = run(*SMALL, watched=silent(mute, rounds=range(1, 3)))
    assert (late.strategy.state.groups >= 0).all()


FEW = ("strategy.anchors=5", "num_clients=12", "strategy.moment_rounds=1", "num_rounds=1")


def scaled(by: float) -> object:
    def change(content: RecordDict) -> RecordDict:
        arrays = content.array_records[kinds.ARRAYS]
        content[kinds.ARRAYS] = ArrayRecord({n: Array((a.numpy() * by).astype("float32")) for n, a in arrays.items()})
        return content

    return change


@pytest.mark.parametrize(("mode", "kind", "times"), [("iteration", SUBSPACE, 4), ("direct", MOMENTS, 1)])
def test_a_client_of_huge_moments_is_refused_and_named_and_leaves_no_trace(
    mode: str, kind: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    settings = (*FEW, f"strategy.subspace={mode}")
    found = run(*settings, watched=Watched({(kind, 1, 7): scaled(1e12)}))  # type: ignore[dict-item]
    assert found.reports[0].replies["invalid"] == times
    assert (
        "client 07 sent an invalid reply: rejected as an outlier: its moments are far larger than the others'"
        in caplog.text
    )

    without = run(*settings, watched=Watched({(kind, 1, 7): lost}))
    assert [bank.tobytes() for bank in found.banks] == [bank.tobytes() for bank in without.banks]
