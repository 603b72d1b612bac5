"""A pool groups clients and replaces workers: those here answer or end as they are told."""

import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from unittest.mock import Mock

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.engines.pool import WorkerPool, WorkersFailed
from florets.engines.processes import READY, ClientSide, Order, Processes, Unit, Worker
from florets.engines.worker_grid import WorkerGrid
from florets.task.task import Task


class Stub(Worker):
    """Answers at once, or ends, as its processes says."""

    def __init__(self, number: int, processes: "Stubs") -> None:
        super().__init__(number, Mock(exitcode=7), Mock())
        self.processes, self.given, self.is_over = processes, list[Unit](), False
        self.coming: deque[bytes | None] = deque([None if number in processes.not_starting else READY])

    @property
    def name(self) -> str:
        return f"stub {self.number}"

    def assign(self, unit: Unit, order: Order) -> bool:
        if self.number in self.processes.gone:
            self.processes.gone.remove(self.number)
            return False
        self.unit = unit
        self.processes.by_worker.setdefault(self.number, []).extend(
            message.metadata.dst_node_id for message, _ in unit.sent
        )
        if self.number in self.processes.ending:
            self.processes.ending.remove(self.number)
            self.coming.append(None)
        else:
            answers = [(Message(RecordDict(), reply_to=message), None) for message, _ in unit.sent]
            self.coming.append(pickle.dumps((answers, 1.0)))
        return True

    def receive(self) -> bytes | None:
        self.pipe.recv_bytes.return_value = self.coming[0]  # type: ignore[attr-defined]
        self.pipe.recv_bytes.side_effect = EOFError if self.coming.popleft() is None else None  # type: ignore[attr-defined]
        return super().receive()

    def end(self) -> None:
        super().end()
        self.is_over = True


class Stubs(Processes):
    """Workers of this process."""

    def __init__(self) -> None:
        super().__init__(client_side, float("inf"), {})
        self.not_starting, self.ending, self.gone = set[int](), set[int](), set[int]()
        self.by_worker: dict[int, list[int]] = {}
        self.started: list[Worker] = []

    def share(self, task: Task, side: ClientSide) -> bool:
        return False

    def start(self, number: int) -> Worker:
        self.started.append(Stub(number, self))
        return self.started[-1]

    def wait(self, workers: Sequence[Worker], seconds: float) -> Sequence[Worker]:
        return [worker for worker in workers if isinstance(worker, Stub) and worker.coming]

    def close(self) -> None:
        super().close()
        self.is_closed = True


def sent(nodes: Iterable[int]) -> list[Message]:
    return [Message(RecordDict({"config": ConfigRecord({})}), node, "train") for node in nodes]


def grid_on(processes: Stubs) -> WorkerGrid:
    grid = WorkerGrid(client_side, 6, None, 2)
    grid._processes = processes
    return grid


def asked(grid: WorkerGrid) -> list[bool]:
    """Return for each client whether its reply is an error."""
    return [reply.has_error() for reply in grid.send_and_receive(sent(range(2, 8)), timeout=10.0)]


def test_each_client_has_its_worker_and_one_that_is_lost_is_replaced() -> None:
    processes = Stubs()
    grid = grid_on(processes)
    assert asked(grid) == [False] * 6
    assert processes.by_worker == {0: [2, 4, 6], 1: [3, 5, 7]}
    processes.ending.add(1)
    assert asked(grid) == [False, True, False, False, False, False]
    assert [worker.number for worker in processes.started] == [0, 1, 1]
    assert processes.started[1].is_over
    assert asked(grid) == [False] * 6
    grid.close()
    assert processes.is_closed
    assert all(worker.is_over for worker in processes.started)


def test_clients_of_a_worker_that_cannot_be_replaced_are_answered_by_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    processes = Stubs()
    grid = grid_on(processes)
    assert asked(grid) == [False] * 6
    processes.ending.add(1)
    processes.not_starting.add(1)
    processes.by_worker.clear()
    assert sum(asked(grid)) == 1
    assert sorted(processes.by_worker[0]) == [2, 4, 5, 6, 7]
    assert processes.by_worker[1] == [3]
    assert asked(grid) == [False] * 6
    assert asked(grid) == [False] * 6
    assert "stub 1 cannot be replaced (exit code 7): others answer for its clients" in caplog.text
    processes.not_starting.add(0)
    processes.ending.add(0)
    # Its two replacements are looked at one after the other.
    with pytest.raises(WorkersFailed, match=r"ended again and again .* \(exit code 7\)"):
        asked(grid)
    grid.close()


def ready_pool(processes: Stubs) -> WorkerPool:
    LocalGrid(client_side().app, 1)  # lets messages be built
    pool = WorkerPool(processes, 2)
    assert list(pool.arrived(0.0)) == []
    return pool


def test_a_worker_that_ends_while_another_is_replaced_is_replaced_once() -> None:
    processes = Stubs()
    pool = ready_pool(processes)
    processes.ending.add(0)
    first, second = sent([2, 4])
    pool.begin([Unit([(message, Context(1, 2, {}, RecordDict(), {}))], worker=0) for message in (first, second)])
    # Worker 1 has ended too, which nobody has seen when the second message is to go to it.
    processes.gone.add(1)
    processes.started[1].coming.append(None)
    assert [reply.has_error() for reply in pool.arrived(0.1)] == [True]
    assert [worker for worker in processes.started if not worker.is_over] == pool.workers
    assert [reply.has_error() for _ in range(2) for reply in pool.arrived(0.1)] == [False]
    pool.close()
    assert all(worker.is_over for worker in processes.started)


def test_a_worker_that_the_system_had_no_room_for_is_tried_once_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("florets.engines.pool._AGAIN_SECONDS", 0.0)
    processes, tries = Stubs(), list[int]()
    start, full = processes.start, {0: 1}

    def refusing(number: int) -> Stub:
        tries.append(number)
        if full.get(number, 0):
            full[number] -= 1
            raise OSError(11, "Resource temporarily unavailable")
        return start(number)

    monkeypatch.setattr(processes, "start", refusing)
    pool = ready_pool(processes)
    assert tries == [0, 0, 1]
    assert "no worker can be started, tried once more: [Errno 11]" in caplog.text
    # One that replaces another is tried again too; where there is no room then either, the others go on.
    full[0] = 2
    pool.workers[1].is_ready = False
    processes.started[0].coming.append(None)
    assert list(pool.arrived(0.1)) == []
    assert tries[3:] == [0, 0]
    assert "stub 0 cannot be replaced" in caplog.text
    pool.close()
    full[1] = 2
    with pytest.raises(WorkersFailed, match=r"worker 2 of 2 cannot be started \(\[Errno 11\] Resource"):
        WorkerPool(processes, 2)
    assert all(worker.is_over for worker in processes.started)
