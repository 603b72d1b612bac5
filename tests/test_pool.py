"""Workers share an exchange and are replaced: those here are no processes, and answer or end as they are told."""

import pickle
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from unittest.mock import Mock

import pytest
from flwr.app import Context, Message, RecordDict

from florets.engines import workers
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.engines.worker_grid import WorkerGrid
from florets.engines.workers import Start, Unit, Worker, WorkersFailed
from florets.task.shared_file import Place, SharedFile


class Stub(Worker):
    """Answers at once, or ends, as its class says of its number."""

    not_starting: set[int]
    dying: set[int]
    gone: set[int]
    started: "list[Stub]"
    by_worker: dict[int, list[int]]

    def __init__(self, number: int, start: Start) -> None:
        self.number, self.unit, self.is_ready, self.is_over = number, None, False, False
        self.pipe, self.theirs = Pipe()
        self._process, self.began = Mock(exitcode=7, pid=number), time.monotonic()
        if number in self.not_starting:
            self.theirs.close()
        else:
            self.theirs.send_bytes(workers._READY)
        self.started.append(self)

    def assign(self, unit: Unit, order: tuple[int, Place, int]) -> bool:
        if self.number in self.gone:
            self.gone.remove(self.number)
            self.theirs.close()
            return False
        self.unit = unit
        self.by_worker.setdefault(self.number, []).extend(message.metadata.dst_node_id for message, _ in unit.sent)
        if self.number in self.dying:
            self.dying.remove(self.number)
            self.theirs.close()
        else:
            answers = [(Message(RecordDict(), reply_to=message), None) for message, _ in unit.sent]
            self.theirs.send_bytes(pickle.dumps(answers))
        return True

    def end(self) -> None:
        super().end()
        self.is_over = True


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Stub]]:
    Stub.not_starting, Stub.dying, Stub.gone, Stub.started, Stub.by_worker = set(), set(), set(), [], {}
    monkeypatch.setattr(workers, "Worker", Stub)
    yield Stub
    assert all(worker.is_over for worker in Stub.started)


def asked(grid: WorkerGrid) -> list[bool]:
    messages = [Message(RecordDict(), node, "train") for node in range(2, 8)]
    return [reply.has_error() for reply in grid.send_and_receive(messages, timeout=10.0)]


def test_each_client_has_its_worker_and_one_that_is_lost_is_replaced() -> None:
    grid = WorkerGrid(client_side, 6, None, 2)
    assert asked(grid) == [False] * 6
    assert Stub.by_worker == {0: [2, 4, 6], 1: [3, 5, 7]}
    Stub.dying.add(1)
    assert sum(asked(grid)) == 1
    assert [worker.number for worker in Stub.started] == [0, 1, 1]
    assert asked(grid) == [False] * 6
    Stub.dying.add(1)
    Stub.not_starting.add(1)
    with pytest.raises(WorkersFailed, match=r"ended again and again .* \(exit code 7\).*workers=1"):
        asked(grid)
    grid.close()


def test_a_worker_that_hangs_while_it_starts_is_replaced() -> None:
    pool = workers.Workers(2, Start(client_side, SharedFile(), {}))
    hanging = pool.all[1]
    hanging.began -= 1000
    pool.begin([])
    assert pool.all[1] is not hanging
    pool.close()


def test_a_worker_that_ends_while_another_is_replaced_is_replaced_once() -> None:
    LocalGrid(client_side().app, 1)  # lets messages be built
    pool = workers.Workers(2, Start(client_side, SharedFile(), {}))
    assert list(pool.arrived(0.0)) == []
    Stub.dying.add(0)
    context = Context(1, 2, {}, RecordDict(), {})
    # Worker 1 has ended too, which nobody has seen when a message is to go to it.
    Stub.gone.add(1)
    pool.begin([Unit([(Message(RecordDict(), 2, "train"), context)]) for _ in range(2)])
    replies = [reply.has_error() for _ in range(3) for reply in pool.arrived(0.1)]
    assert sorted(replies) == [False, True]
    assert {worker for worker in Stub.started if not worker.is_over} == {*pool.all}
    pool.close()


def test_a_system_without_room_for_a_worker_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(number: int, start: Start) -> Worker:
        if number:
            raise OSError(11, "Resource temporarily unavailable")
        return Stub(number, start)

    monkeypatch.setattr(workers, "Worker", refused)
    with pytest.raises(WorkersFailed, match=r"worker 2 cannot be started \(\[Errno 11\] Resource"):
        workers.Workers(2, Start(client_side, SharedFile(), {}))
