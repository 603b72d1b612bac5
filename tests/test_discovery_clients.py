"""Discovery with clients that are few at a time, have few samples, or samples that cannot be divided."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from florets.strategies.base.report import EVIDENCE, RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.discovery.strategy import Discovery
from florets.strategies.shared.messages import TRAIN_FOLDS
from florets.task.wire import kinds
from tests.fakes import Fault
from tests.fold_clients import SIZE, FoldClients, directions, vector

A, B, C = directions(3)
TWO = [A, A, A, B, B, B]


def run(strategy: Discovery | CLoVE, clients: FoldClients, rounds: int) -> list[RoundReport]:
    reports: list[RoundReport] = []
    first = ArrayRecord({f"{k}/w": Array(np.zeros(SIZE, dtype=np.float32)) for k in range(4)})
    start = first if isinstance(strategy, CLoVE) else vector(np.zeros(SIZE))
    strategy.start(clients.grid(), start, num_rounds=rounds, on_round=lambda report, _: bool(reports.append(report)))
    return reports


def verdicts(reports: list[RoundReport]) -> list[str]:
    found = [report.details.get(EVIDENCE) for report in reports]
    return [str(one["verdict"]) for one in found if isinstance(one, dict)]


def lost(_: RecordDict) -> RecordDict:
    return RecordDict()


def test_clients_with_too_few_samples_for_folds_are_not_waited_for() -> None:
    # Half of the clients have rows: three of four of them all would never come together.
    clients = FoldClients([A, B] * 8, examples=[100] * 8 + [10] * 8)
    reports = run(Discovery(k="auto", level=0.05, fraction_train=0.5, seed=2), clients, 6)
    assert verdicts(reports)[-1] == "groups"


def test_a_round_whose_clients_no_group_fits_is_trained_by_others() -> None:
    # With this seed client 6, which belongs to neither group, is drawn after the decision.
    clients = FoldClients([*TWO, C], noise=0.2)
    strategy = Discovery(k="auto", level=0.05, clients_needed=6, fraction_train=0.15, round_tries=1, seed=2)
    reports = run(strategy, clients, 30)
    assert strategy.state.unfit == {"6"}
    assert all(len(report.participants) == 1 for report in reports)
    decided = verdicts(reports).index("groups")
    assert {report.participants for report in reports[decided + 1 :]} <= {(str(client),) for client in range(6)}


def test_one_group_that_was_asked_for_is_no_finding() -> None:
    (first,) = run(Discovery(k=1), FoldClients(TWO), 1)
    found = first.details[EVIDENCE]
    assert isinstance(found, dict)
    assert found["text"] == "one group of all clients, as k says; one model for all"


def test_rows_that_are_lost_are_waited_for_some_rounds() -> None:
    def lose(rounds: int) -> dict[tuple[str, int, int], Fault]:
        return {(TRAIN_FOLDS, r, client): lost for r in range(1, rounds + 1) for client in (0, 1, 2)}

    back = FoldClients(TWO, faults=lose(1))
    assert verdicts(run(Discovery(k="auto", level=0.05), back, 3)) == ["open", "groups"]
    # Who never answers does not keep the others waiting for ever.
    gone = FoldClients(TWO, faults=lose(9))
    assert verdicts(run(Discovery(k=1), gone, 4)) == ["open", "open", "none"]


@pytest.mark.slow
def test_sites_that_are_few_have_enough_folds_for_a_test() -> None:
    # Two and two: with four folds no p value reaches the level.
    (first,) = run(Discovery(k="auto"), FoldClients([A, A, B, B], examples=[45] * 4, noise=0.2), 1)
    assert verdicts([first]) == ["groups"]


def alike(content: RecordDict) -> RecordDict:
    """Send one row, as a client does whose samples are all equal."""
    rows = content.array_records[kinds.FOLDS][kinds.FOLDS].numpy()
    content[kinds.FOLDS] = ArrayRecord({kinds.FOLDS: Array(rows[:1])})
    return content


def test_a_client_whose_samples_cannot_be_divided_is_placed_afterwards() -> None:
    clients = FoldClients([*TWO, B], faults={(TRAIN_FOLDS, 1, 6): alike})
    strategy = Discovery(k="auto", level=0.05)
    (first,) = run(strategy, clients, 1)
    assert first.replies["ok"] == 14
    assert strategy.assignment["6"] == strategy.assignment["5"]


@pytest.mark.parametrize(("loss_data", "size"), [("train", 15), ("held_out", 12)])
@pytest.mark.slow
def test_folds_have_the_size_that_the_samples_trained_on_allow(loss_data: str, size: int) -> None:
    clients = FoldClients([*TWO, A, B], examples=[60] * 8)
    strategy = CLoVE(k="auto", choose_k="folds", loss_data=loss_data)  # type: ignore[arg-type]
    run(strategy, clients, 1)
    sizes = {c[kinds.CONFIG].get(kinds.FOLD_SIZE) for c in clients.contents} - {None}
    assert sizes == {size}
