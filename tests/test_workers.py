"""Worker processes: the bits of one process, and nothing is left of them however a run ends."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from safetensors.numpy import load_file

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.engines.engine import client_side, start_fork_server
from florets.engines.local_grid import LocalGrid
from florets.engines.worker_grid import WorkerGrid
from florets.engines.workers import LoadClientSide
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.base.report import RoundReport
from florets.strategies.core import FloatArray
from florets.task.task import Task
from florets.task.wire import bank, kinds
from tests.golden_runs import differences, play
from tests.grid_runs import run_on
from tests.worker_clients import ending, hanging, raising

pytestmark = pytest.mark.slow

SMALL = ("num_clients=12", "task.model_options.hidden=[16]", "quiet=true", "loss_matrix=false", "pictures=false")
SOON = 60.0
"""Seconds within which processes end, on a loaded machine."""


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    start_fork_server()


@contextmanager
def grid_of(config: Config, task: Task, workers: int, load: LoadClientSide = client_side) -> Iterator[LocalGrid]:
    if workers == 1:
        side = load()
        yield LocalGrid(side.app, config.num_clients, None, side.in_blocks)
        return
    with closing(WorkerGrid(load, config.num_clients, None, workers)) as grid:
        grid.share(task)
        yield grid


def run(
    keys: Sequence[str], workers: int, load: LoadClientSide = client_side, block: int = 1
) -> tuple[FloatArray, list[RoundReport]]:
    config = compose([*SMALL, *keys])
    task = build_task(config)
    with grid_of(config, task, workers, load) as grid:
        grid.block_size = block
        strategy, reports = run_on(grid, config, task)
    return bank.unpack(strategy.context.models.record)[0], reports


# One for each way to talk to clients: what each strategy sends, the golden runs have.
GOLDEN = (
    "digits-clove-partial", "digits-clove-shared", "digits-ifca-gradients", "digits-cfl_gp-gradients",
    "digits-fedavg-batch-norm", "digits-discovery", "digits-flexcfl", "digits-pacfl", "digits-fedem",
    "digits-feddrift", "digits-fedsoft", "digits-fedproto", "digits-fedala",
    "mixed_regression-a-two_phase", "mixed_regression-a-proximal",
)  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_run_has_the_bits_of_one_process(name: str) -> None:
    with ExitStack() as stack:
        found = play(name, lambda config, task: stack.enter_context(grid_of(config, task, 2)))
    assert differences(play(name), found) == []


@pytest.mark.parametrize(
    ("keys", "workers"),
    [
        (("strategy=clove", "num_rounds=3", "loss_data=held_out"), 2),
        (("strategy=ifca", "num_rounds=2", "train.batch_size=9", "strategy.fraction_train=0.7", "loss_batch=7"), 3),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_blocks_have_the_bits_of_one_process(keys: tuple[str, ...], workers: int) -> None:
    models, reports = run(keys, workers, block=4)
    alone, single = run(keys, 1, block=4)
    assert (models == alone).all()
    assert [report.evaluations for report in reports] == [report.evaluations for report in single]


def test_a_worker_that_is_killed_costs_its_client_the_round_and_nobody_a_bit() -> None:
    keys = ("strategy=clove", "num_rounds=3", "quorum=0.5")
    models, reports = run(keys, 2, ending)
    alone, single = run(keys, 1, raising)
    assert [report.replies["error"] for report in reports] == [0, 1, 0]
    assert (models == alone).all()
    assert [report.assignment for report in reports] == [report.assignment for report in single]


def test_a_client_that_hangs_is_missing_at_the_deadline_and_its_worker_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models, reports = run(("strategy=clove", "num_rounds=3", "quorum=0.5", "round_timeout=15"), 2, hanging)
    assert [report.replies["missing"] for report in reports] == [0, 1, 0]
    assert (
        len(re.findall(r"worker process \d+ did not answer in time for 1 client: it is replaced", caplog.text)) == 1
    )
    alone, _ = run(("strategy=clove", "num_rounds=3", "quorum=0.5"), 1, raising)
    assert (models == alone).all()


def asked(handler: str, node: int, **settings: int) -> Message:
    config = ConfigRecord({kinds.HANDLER: f"tests.worker_clients:{handler}", **settings})
    return Message(RecordDict({kinds.CONFIG: config}), node, "query.custom")


def numbers(replies: Sequence[Message], name: str) -> list[int | None]:
    return [int(reply.content["metrics"][name]) if reply.has_content() else None for reply in replies]  # type: ignore[call-overload, index, arg-type]


def test_a_clients_state_is_its_own_whichever_worker_answers() -> None:
    with closing(WorkerGrid(client_side, 6, None, 2)) as grid:
        for turn in (1, 2, 3):
            replies = grid.send_and_receive([asked("remember", node) for node in range(2, 8)], timeout=SOON)
            assert numbers(replies, "seen") == [turn] * 6
        worker = grid.workers.all[0]
        kill(worker.pid)
        # A process counts as ended before its pipe is closed.
        assert worker.pipe.poll(SOON)
        assert numbers(grid.send_and_receive([asked("remember", 2)], timeout=SOON), "seen") == [4]


def test_workers_compute_with_one_thread() -> None:
    with closing(WorkerGrid(client_side, 2, None, 2)) as grid:
        replies = grid.send_and_receive([asked("threads", 2)], timeout=SOON)
        assert numbers(replies, "torch") == [1]
        assert numbers(replies, "server") == [1], "a copy of a process with threads may hang"


def test_models_that_are_kept_are_there_on_a_worker_that_is_new() -> None:
    config = compose([*SMALL, "k=2"])
    task = build_task(config)
    settings = message_settings(config, task)
    models = build_models(config, task)
    with grid_of(config, task, 2) as grid:
        assert isinstance(grid, WorkerGrid)

        def message(kind: str, arrays: ArrayRecord | None, **others: int | str) -> Message:
            own = settings.copy()
            own.update({kinds.BANK: "this round", **{key.replace("_", "-"): value for key, value in others.items()}})
            content = RecordDict({kinds.CONFIG: own})
            if arrays is not None:
                content[kinds.ARRAYS] = arrays
            return Message(content, 2, kind)

        kept = grid.send_and_receive([message(kinds.LOSSES, models)], timeout=SOON)
        assert numbers(kept, "kept") == [1]
        for worker in grid.workers.all:
            kill(worker.pid)
        named = grid.send_and_receive([message(kinds.TRAIN, None, model_index=1)], timeout=SOON)
        whole = grid.send_and_receive([message(kinds.TRAIN, bank.model(models, 1))], timeout=SOON)
        one, other = (replies[0].content[kinds.ARRAYS] for replies in (named, whole))
        assert isinstance(one, ArrayRecord)
        assert isinstance(other, ArrayRecord)
        assert [array.data for array in one.values()] == [array.data for array in other.values()]


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    keys = [*(key for key in SMALL if key != "loss_matrix=false"), "strategy.fraction_train=0.7"]
    assert main([*keys, "num_rounds=4", f"results_dir={tmp_path / 'whole'}"]) == 0
    assert main([*keys, "num_rounds=2", "workers=2", f"results_dir={tmp_path / 'parts'}"]) == 0
    (whole,), (parts,) = ([*(tmp_path / name).rglob("seed-0")] for name in ("whole", "parts"))
    assert main([f"resume={parts}", "num_rounds=3", "workers=3", "quiet=true"]) == 0
    assert main([f"resume={parts}", "num_rounds=4", "workers=1", "quiet=true"]) == 0
    assert (whole / "loss_matrix.csv").read_text() == (parts / "loss_matrix.csv").read_text()
    assert (whole / "clients.csv").read_text() == (parts / "clients.csv").read_text()
    one, other = (load_file(folder / "models.safetensors") for folder in (whole, parts))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_nodes_with_data_of_their_own_have_them_in_workers_too(tmp_path: Path) -> None:
    for name, labels in (("a", "012"), ("b", "120"), ("c", "210")):
        rows = [f"{value / 10},{(value * 7) % 10 / 10},{labels[value % 3]}" for value in range(30)]
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "data.csv").write_text("\n".join(["u,v,label", *rows]) + "\n")
    options = ["task.partition_options.input_shape=[2]", "task.partition_options.num_outputs=3"]
    keys = [*SMALL[1:], "task=own", *options, f"data_dir={tmp_path / 'data'}", "min_clients=3", "k=2", "num_rounds=2"]
    for workers in (1, 2):
        assert main([*keys, f"workers={workers}", f"results_dir={tmp_path / str(workers)}"]) == 0
    files = [next((tmp_path / name).rglob("models.safetensors")) for name in ("1", "2")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert main([*keys, "workers=4", f"results_dir={tmp_path / '4'}"]) == 2


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + SOON
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Say whether a process has ended, be it that nobody has asked how."""
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        # The first thread may have ended before the others, which still hold the process's pipes.
        return ended and len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def below(pid: int) -> set[int]:
    """Return the processes that one has started, and those that these have."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            found |= {int(path.parent.name)} | below(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("how", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    ids=lambda x: str(x),
)
def test_no_process_is_left_of_a_run_that_is_ended(how: signal.Signals, code: int, tmp_path: Path) -> None:
    keys = [*SMALL, "num_rounds=100000", "strategy.stop_when_stable=false", "workers=2", f"results_dir={tmp_path}"]
    command = [sys.executable, "-m", "florets", *keys]

    # Whoever started the tests in the background may have had them ignore Ctrl-C, which a process inherits.
    def heeds() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=heeds
    )
    assert process.stdout is not None
    try:
        # The third round has begun, and the first has its checkpoint: a round's line comes before it.
        assert any(b"round 2/" in line for line in process.stdout)
        started = below(process.pid)
        assert len(started) >= 3, "the server process and two workers"
        if how == signal.SIGINT:
            # As a terminal does.
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        last = [b"", *process.stdout][-1]
        process.stdout.close()
        assert process.wait(SOON) == code
        assert last.startswith(b"florets: interrupted; go on with: florets resume=") == (how != signal.SIGKILL)
    finally:
        # It would go on for hours after a test that failed. Of one that has ended, the others must end by themselves.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    deadline = time.monotonic() + SOON
    while not all(gone(pid) for pid in started) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [pid for pid in started if not gone(pid)] == []
