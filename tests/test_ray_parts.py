"""The parts of `engine=ray` that need no Ray: what is refused, and how a pool groups clients and replaces workers."""

import functools
import os
import pickle
import socket
import sys
import types
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from florets.commands.main import main
from florets.conf import extras
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.saved import run_folder
from florets.engines import flower_processes, ray_cluster
from florets.engines.engine import client_side
from florets.engines.flower_run import SuperLink
from florets.engines.local_grid import LocalGrid
from florets.engines.pool import READY, Backend, ClientSide, Unit, Worker, WorkerPool, WorkersFailed
from florets.engines.ray_cluster import check_address, check_simulation, num_actors
from florets.engines.ray_workers import RayActor, _reason
from florets.engines.worker_grid import WorkerGrid
from florets.server_app.experiment import run_experiment
from florets.server_app.resume import CHANGEABLE
from florets.task.task import Task, TaskSpec
from tests.own_functions import SPEC


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (["ray_address=auto"], "ray_address=auto: has no effect with engine=local; add engine=ray."),
        (["engine=ray", "ray_address=node"], "ray_address=node: must be auto or <host:port>"),
        (["engine=ray", "ray_address='ray://node:1'"], "Ray's client protocol is not used; run florets on a node"),
        (["engine=ray", "device=cuda"], "device=cuda: engine=ray computes on CPUs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_settings_are_refused(keys: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        compose(keys)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != "ray")
    assert main(["engine=ray"]) == 2
    assert 'engine=ray: needs ray; pip install "florets[ray]" installs it.' in capsys.readouterr().err


def test_actors_are_one_for_each_free_cpu_or_as_many_as_asked_for() -> None:
    assert num_actors(None, 20, 8, 6) == 6
    assert num_actors("auto", 4, 8, 6) == 4
    assert num_actors(8, 20, 8, 0) == 8
    with pytest.raises(ConfigError, match="workers=9: the Ray cluster has 8 CPUs"):
        num_actors(9, 20, 8, 8)
    with pytest.raises(ConfigError, match=r"workers=5: more than clients \(4\)"):
        num_actors(5, 4, 8, 8)
    with pytest.raises(ConfigError, match="no free CPU"):
        num_actors(None, 20, 8, 0)


def test_the_cluster_is_no_part_of_a_run(tmp_path: Path) -> None:
    keys = ["engine=ray", "ray_address=auto"]
    assert run_folder(compose(keys), keys) == run_folder(compose(keys[:1]), keys[:1])
    assert "ray_address" in CHANGEABLE
    with pytest.raises(ConfigError, match="engine=ray: this run is on Flower's own engine already"):
        run_experiment(Mock(spec=Grid), compose(keys), tmp_path / "run")


def test_an_actor_says_which_data_its_node_lacks(tmp_path: Path) -> None:
    side = ClientSide(client_side().app, client_side().in_blocks, client_side().cut_blocks, lambda task: None)
    spec = TaskSpec("mnist", "rotation", "mlp", "cross_entropy", 4, 2, 0, str(tmp_path / "none"))
    assert "none" in RayActor().start(lambda: side, spec.to_json(), [], {}).problem
    missing = RayActor().start(lambda: side, "", [str(tmp_path), str(tmp_path / "gone")], {}).problem
    assert missing == f"the folder {tmp_path / 'gone'} does not exist there"
    fine = RayActor().start(lambda: side, SPEC.to_json(), [str(tmp_path)], {})
    assert fine.problem == ""
    assert "process" in fine.where


def test_pages_of_rays_become_a_few_words() -> None:
    died = type("ActorDiedError", (Exception,), {})
    assert _reason(died("The actor is dead because its node has died. Node Id: 7")) == "its node is gone"
    assert _reason(died("The actor died unexpectedly.\n\tclass_name: RayActor")) == "killed, or ended by a client"
    made = (
        "The actor died because of an error raised in its creation task, x\n  File y\nModuleNotFoundError: florets\n"
    )
    assert _reason(died(made)) == "ModuleNotFoundError: florets"
    assert _reason(type("OutOfMemoryError", (Exception,), {})("Task was killed")) == "out of memory"


class Stub(Worker):
    """Answers at once, or ends, as its backend says."""

    def __init__(self, number: int, backend: "Stubs") -> None:
        super().__init__(number)
        self.backend, self.given, self.is_over = backend, list[Unit](), False
        self.coming: deque[bytes | None] = deque([None if number in backend.not_starting else READY])

    @property
    def name(self) -> str:
        return f"stub {self.number}"

    @property
    def ending(self) -> str:
        return "over"

    def send(self, unit: Unit) -> bool:
        if self.number in self.backend.gone:
            self.backend.gone.remove(self.number)
            return False
        self.given.append(unit)
        self.backend.by_worker.setdefault(self.number, []).extend(
            message.metadata.dst_node_id for message, _ in unit.sent
        )
        if self.number in self.backend.ending:
            self.backend.ending.remove(self.number)
            self.coming.append(None)
        else:
            answers = [(Message(RecordDict(), reply_to=message), None) for message, _ in unit.sent]
            self.coming.append(pickle.dumps((answers, 1.0)))
        return True

    def read(self) -> bytes | None:
        return self.coming.popleft()

    def kill(self) -> None:
        self.is_over = True


class Stubs(Backend):
    """Workers of this process."""

    def __init__(self) -> None:
        self.not_starting, self.ending, self.gone = set[int](), set[int](), set[int]()
        self.by_worker: dict[int, list[int]] = {}
        self.started: list[Stub] = []

    def share(self, task: Task, folders: Sequence[str], side: ClientSide) -> bool:
        return False

    def start(self, number: int) -> Stub:
        self.started.append(Stub(number, self))
        return self.started[-1]

    def begin(self, messages: Iterable[Message]) -> None:
        self.sent = len(list(messages))

    def wait(self, workers: Sequence[Worker], seconds: float) -> Sequence[Worker]:
        return [worker for worker in workers if isinstance(worker, Stub) and worker.coming]

    def why_lost(self, worker: Worker) -> str:
        return f"{worker.name} ended"

    def cannot_start(self, ending: str) -> str:
        return f"no workers: {ending}"

    def close(self) -> None:
        self.is_closed = True


def sent(nodes: Iterable[int]) -> list[Message]:
    return [Message(RecordDict({"config": ConfigRecord({})}), node, "train") for node in nodes]


def asked(grid: WorkerGrid) -> list[bool]:
    """Return for each client whether its reply is an error."""
    return [reply.has_error() for reply in grid.send_and_receive(sent(range(2, 8)), timeout=10.0)]


def test_each_client_has_its_worker_and_one_that_is_lost_is_replaced() -> None:
    backend = Stubs()
    grid = WorkerGrid(client_side, 6, None, 2, backend)
    assert asked(grid) == [False] * 6
    assert backend.by_worker == {0: [2, 4, 6], 1: [3, 5, 7]}
    backend.ending.add(1)
    assert asked(grid) == [False, True, False, False, False, False]
    assert [worker.number for worker in backend.started] == [0, 1, 1]
    assert backend.started[1].is_over
    assert asked(grid) == [False] * 6
    grid.close()
    assert backend.is_closed
    assert all(worker.is_over for worker in backend.started)


def test_clients_of_a_worker_that_cannot_be_replaced_are_answered_by_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Stubs()
    grid = WorkerGrid(client_side, 6, None, 2, backend)
    assert asked(grid) == [False] * 6
    backend.ending.add(1)
    backend.not_starting.add(1)
    backend.by_worker.clear()
    assert sum(asked(grid)) == 1
    assert sorted(backend.by_worker[0]) == [2, 4, 5, 6, 7]
    assert backend.by_worker[1] == [3]
    assert asked(grid) == [False] * 6
    assert asked(grid) == [False] * 6
    assert "stub 1 cannot be replaced (over): others answer for its clients" in caplog.text
    backend.not_starting.add(0)
    backend.ending.add(0)
    # Its two replacements are looked at one after the other.
    with pytest.raises(WorkersFailed, match="no workers: over"):
        asked(grid)
    grid.close()


def test_a_run_waits_at_its_start_for_the_workers_and_says_which_cannot() -> None:
    backend = Stubs()
    backend.start_seconds = 5.0
    backend.not_starting.add(1)
    grid = WorkerGrid(client_side, 4, None, 2, backend)
    with pytest.raises(ConfigError, match=r"no workers: over\."):
        grid.prepare(compose(["engine=ray"]), Task(SPEC))
    grid.close()


def test_workers_that_are_late_have_their_clients_answered_by_the_others() -> None:
    backend = Stubs()
    pool = WorkerPool(backend, 2)
    backend.started[1].coming.clear()
    pool.wait_until_ready(0.01)
    assert [worker.is_lost for worker in pool.workers] == [False, True]
    LocalGrid(client_side().app, 1)  # lets messages be built
    (message,) = sent([3])
    pool.begin([Unit([(message, Context(1, 3, {}, RecordDict(), {}))], worker=1)])
    assert len(list(pool.arrived(0.1))) == 1
    backend.started[0].coming.clear()
    backend.started[0].is_ready = False
    backend.start_seconds = 0.0
    assert list(pool.arrived(0.01)) == []
    with pytest.raises(WorkersFailed, match="none was ready"):
        list(pool.arrived(0.01))
    pool.close()


def ready_pool(backend: Stubs) -> WorkerPool:
    LocalGrid(client_side().app, 1)  # lets messages be built
    pool = WorkerPool(backend, 2)
    pool.wait_until_ready(1.0)
    return pool


def test_a_worker_that_ends_while_another_is_replaced_is_replaced_once() -> None:
    backend = Stubs()
    pool = ready_pool(backend)
    backend.ending.add(0)
    first, second = sent([2, 4])
    pool.begin([Unit([(message, Context(1, 2, {}, RecordDict(), {}))], worker=0) for message in (first, second)])
    # Worker 1 has ended too, which nobody has seen when the second message is to go to it.
    backend.gone.add(1)
    backend.started[1].coming.append(None)
    assert [reply.has_error() for reply in pool.arrived(0.1)] == [True]
    assert [worker for worker in backend.started if not worker.is_over] == pool.workers
    assert [reply.has_error() for _ in range(2) for reply in pool.arrived(0.1)] == [False]
    pool.close()
    assert all(worker.is_over for worker in backend.started)


def test_a_worker_that_the_system_had_no_room_for_is_tried_once_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("florets.engines.pool._AGAIN_SECONDS", 0.0)
    backend, tries = Stubs(), list[int]()
    start, full = backend.start, {0: 1}

    def refusing(number: int) -> Stub:
        tries.append(number)
        if full.get(number, 0):
            full[number] -= 1
            raise OSError(11, "Resource temporarily unavailable")
        return start(number)

    monkeypatch.setattr(backend, "start", refusing)
    pool = ready_pool(backend)
    assert tries == [0, 0, 1]
    assert "no worker can be started, tried once more: [Errno 11]" in caplog.text
    # One that replaces another is tried again too; where there is no room then either, the others go on.
    full[0] = 2
    pool.workers[1].is_ready = False
    backend.started[0].coming.append(None)
    assert list(pool.arrived(0.1)) == []
    assert tries[3:] == [0, 0]
    assert "stub 0 cannot be replaced" in caplog.text
    pool.close()
    full[1] = 2
    with pytest.raises(WorkersFailed, match=r"worker 2 of 2 cannot be started \(\[Errno 11\] Resource"):
        WorkerPool(backend, 2)
    assert all(worker.is_over for worker in backend.started)


@pytest.mark.parametrize(
    ("free_over_time", "seconds", "wait", "free"),
    [
        ([{}, {"CPU": 1.0}, {"CPU": 2.0}], 60.0, True, 2),
        ([{}, {"CPU": 1.0}, {"CPU": 2.0}], 60.0, False, 0),
        ([{"CPU": 1.0}], 0.3, True, 1),
    ],
)
def test_cpus_that_another_run_has_just_left_are_waited_for_but_not_those_in_use(
    monkeypatch: pytest.MonkeyPatch, free_over_time: list[dict[str, float]], seconds: float, wait: bool, free: int
) -> None:
    monkeypatch.setattr(ray_cluster, "_SETTLED", seconds)
    monkeypatch.setattr(ray_cluster, "_NONE_FREE", seconds)
    fake = types.SimpleNamespace(
        is_initialized=lambda: True,
        nodes=lambda: [{"Resources": {"CPU": 2.0}, "Alive": True}],
        available_resources=lambda: free_over_time.pop(0) if len(free_over_time) > 1 else free_over_time[0],
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    with ray_cluster.connected("auto", wait) as cpus:
        assert cpus == (2, free)


def test_a_ray_of_its_own_listens_on_this_machine_alone_and_a_clusters_does_not_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    asked = list[dict[str, object]]()
    fake = types.SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **given: asked.append({**given, name: os.environ.get(name)}),
        shutdown=lambda: None,
        nodes=lambda: [{"Resources": {"CPU": 2.0}, "Alive": True}],
        available_resources=lambda: {"CPU": 2.0},
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    for address in ("", "auto"):
        # Its own values are put back after the test.
        for variable in (name, "RAY_USAGE_STATS_ENABLED", "RAY_DEDUP_LOGS_SKIP_REGEX"):
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
        monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        with ray_cluster.connected(address) as cpus:
            assert cpus == (2, 2)
    own, cluster = asked
    assert (own["address"], own[name]) == ("local", "0")
    assert (cluster["address"], cluster[name]) == ("auto", None)
    assert "_temp_dir" not in cluster
    assert not Path(str(own["_temp_dir"])).exists()


def test_an_address_without_a_head_node_is_refused_before_ray_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: True)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(
        ConfigError, match=rf"ray_address=127.0.0.1:{port}: the process at that address is not a Ray head node"
    ):
        check_address(f"127.0.0.1:{port}")
    server.stop(None).wait()
    with pytest.raises(ConfigError, match=rf"ray_address=127.0.0.1:{port}: nobody answers there; .* `ray start"):
        check_address(f"127.0.0.1:{port}")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS=127.0.0.1:{port}: nobody answers"):
        check_address("auto")
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS=127.0.0.1:{port}: nobody answers there; .* unset RAY"):
        check_simulation()
    check_address("")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=local asks for no cluster; unset it"):
        check_address("auto")
    for no_head_node in ("local", "ray://127.0.0.1:1", ""):
        monkeypatch.setenv("RAY_ADDRESS", no_head_node)
        check_simulation()


def test_a_cluster_that_was_killed_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    services = pytest.importorskip("ray._private.services", reason="Ray is not installed")
    from ray._common.utils import get_ray_address_file

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # The folder in which Ray notes the cluster that was started last, and no process of another one.
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", functools.cache(frozenset))
    check_address("auto")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    note = Path(get_ray_address_file(None))
    note.parent.mkdir()
    note.write_text(address)
    with pytest.raises(ConfigError, match=rf"ray_address=auto \({address}\): nobody answers there; the cluster"):
        check_address("auto")
    check_simulation()
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(ConfigError, match=rf"ray_address=auto \({address}\): nobody answers there; the cluster"):
        check_address("auto")
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS=auto \({address}\): nobody answers there; .*or unset RAY"):
        check_simulation()


def test_flowers_simulation_has_a_ray_of_its_own_unless_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_processes, "start", lambda *arguments: None)
    monkeypatch.setattr(flower_processes, "wait_for_port", lambda *arguments, **more: True)
    monkeypatch.setattr(flower_processes, "end", lambda process: None)
    for given, found in ((None, "local"), ("", "local"), ("node:6379", "node:6379")):
        if given is None:
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
        else:
            monkeypatch.setenv("RAY_ADDRESS", given)
        with SuperLink() as superlink:
            assert superlink.environment["RAY_ADDRESS"] == found
