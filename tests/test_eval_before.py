"""`eval=before`: tests in the next round's exchange, recorded with the round whose models they are of."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.server_app.parcel_grid import ParcelGrid
from florets.task.wire import bank, kinds, payload_bytes
from florets.task.wire.parcels import Hosting
from tests.grid_runs import run_on
from tests.test_resume import results, resumed, settings, with_copies

SMALL = ("num_clients=6", "k=2", "task.num_clusters=2", "num_rounds=5", "quiet=true")


class Watched(LocalGrid):
    """Notes the kinds of messages of each exchange, and bytes down; from a round on all training fails."""

    def __init__(self, fails_from: int = 99) -> None:
        super().__init__(app, 6)
        self.exchanges: list[Counter[str]] = []
        self.bytes_down = 0
        self._fails_from = fails_from
        self.tests_fail = False

    def push_messages(self, messages: Any) -> list[str]:
        messages = list(messages)
        self.exchanges.append(Counter(message.metadata.message_type for message in messages))
        for message in messages:
            # Arrays that several records of one message share travel once.
            arrays = {
                id(a): len(a.data) for record in message.content.array_records.values() for a in record.values()
            }
            of_all = sum(len(a.data) for record in message.content.array_records.values() for a in record.values())
            self.bytes_down += payload_bytes(message.content) - of_all + sum(arrays.values())
        return super().push_messages(messages)

    def _deliver(self, message: Message) -> Message:
        if message.metadata.message_type == kinds.TRAIN and int(message.metadata.group_id) >= self._fails_from:
            message.content["config"] = message.content["config"].copy()
            del message.content["config"]["learning-rate"]
        if self.tests_fail and message.metadata.message_type == kinds.EVALUATE and kinds.TRAIN in self.exchanges[-1]:
            del message.content["arrays"]
        return super()._deliver(message)


def run(grid: Any, *more: str) -> tuple[bytes, list[Any]]:
    config = compose([*SMALL, *more])
    strategy, reports = run_on(grid, config, build_task(config))
    rows = [(one.server_round, one.evaluations, one.bytes_up, one.replies, one.assignment) for one in reports]
    return bank.unpack(strategy.context.models.record)[0].tobytes(), rows


@pytest.mark.parametrize(
    "more",
    [
        "strategy=clove strategy.stability_rounds=2",
        "strategy=ifca strategy.fraction_train=0.5",
        "strategy=fedavg eval_every=2",
        "strategy=ditto fine_tune_epochs=1",
    ],
)
def test_every_round_has_the_figures_that_a_test_after_it_gives(more: str) -> None:
    assert run(Watched(), *more.split(), "eval=before") == run(Watched(), *more.split())


def test_a_round_is_one_exchange_and_its_model_is_sent_once() -> None:
    before, after = Watched(), Watched()
    run(ParcelGrid(before, Hosting(1)), "strategy=fedavg", "eval=before")
    run(after, "strategy=fedavg")
    # The first round has nothing to test, and the last one's test is an exchange of its own.
    assert [dict(one) for one in before.exchanges] == [
        {kinds.HELLO: 6}, {kinds.TRAIN: 6}, *[{kinds.PARCEL: 6}] * 4, {kinds.EVALUATE: 6},
    ]  # fmt: skip
    assert len(after.exchanges) == 1 + 2 * 5
    assert before.bytes_down < 0.65 * after.bytes_down


def test_a_killed_run_goes_on_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, copies = with_copies(monkeypatch, tmp_path, settings("ifca", "eval=before", "num_rounds=4"), [1, 2])
    assert results(resumed(copies[1])) == results(folder)
    # Figures are equal either way, so that the rest may be tested at other times.
    assert results(resumed(copies[0], "eval=after")) == results(folder)
