"""A Ray cluster of two nodes on this machine: the bits of one process, a node that is lost, and what is left."""

import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from florets.commands.main import main
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.engines.pool import ClientSide
from florets.engines.worker_grid import WorkerGrid
from florets.server_app.build import build_task
from florets.strategies.base.report import RoundReport
from florets.strategies.core import FloatArray
from florets.task.wire import bank
from tests.grid_runs import run_on
from tests.worker_clients import LOST, before_training, ending_a_node

# Ray leaves files of its processes open, and speaks of its future.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SMALL = ("num_clients=12", "task.model_options.hidden=[16]", "quiet=true", "pictures=false")
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of a cluster of two nodes with a CPU each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    try:
        cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={**small, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE},
        )
        cluster.add_node(**small)
    except (OSError, RuntimeError) as error:
        pytest.skip(f"Ray cannot start here: {error}")
    yield cluster.address
    cluster.shutdown()


def test_a_run_on_two_nodes_goes_on_there_and_has_the_bits_of_one_process(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [*SMALL, "strategy=clove", "personal=slopes", "strategy.fraction_train=0.7", "batch_clients=4"]
    on_ray = ["engine=ray", f"ray_address={address}"]
    assert main([*keys, "num_rounds=3", f"results_dir={tmp_path / 'here'}"]) == 0
    assert main([*keys, *on_ray, "num_rounds=2", f"results_dir={tmp_path / 'there'}"]) == 0
    assert "Ray: 2 actors, on a cluster of 2 CPUs" in capsys.readouterr().err
    (here,), (there,) = ([*(tmp_path / name).rglob("seed-0")] for name in ("here", "there"))
    assert main([f"resume={there}", "num_rounds=3", "quiet=true"]) == 0
    for name in ("loss_matrix.csv", "clients.csv"):
        assert (here / name).read_text() == (there / name).read_text()
    for name in ("models.safetensors", "own_models.safetensors"):
        one, other = load_file(here / name), load_file(there / name)
        assert one.keys() == other.keys()
        assert all(one[key].tobytes() == other[key].tobytes() for key in one)


def played(grid: LocalGrid) -> tuple[FloatArray, list[RoundReport]]:
    config = compose([*SMALL, "strategy=clove", "num_rounds=4", "quorum=0.5"])
    task = build_task(config)
    if isinstance(grid, WorkerGrid):
        grid.share(task)
    strategy, reports = run_on(grid, config, task)
    return bank.unpack(strategy.context.models.record)[0], reports


def losing(lost: dict[int, int]) -> ClientSide:
    def maybe(partition_id: int, server_round: int) -> None:
        if lost.get(server_round) == partition_id:
            raise RuntimeError("lost")

    return before_training(maybe)


# Last of the tests with a run: afterwards the cluster has one node.
def test_a_node_and_an_actor_that_are_lost_cost_their_clients_the_round_and_nobody_a_bit(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    from florets.engines.ray_cluster import connected
    from florets.engines.ray_workers import RayBackend

    with (
        connected(address) as cpus,
        closing(WorkerGrid(ending_a_node, 12, None, 2, RayBackend(ending_a_node, 120.0, "data"))) as grid,
    ):
        assert cpus == (2, 2)
        models, reports = played(grid)
    assert [report.replies["error"] for report in reports] == [0, 1, 1, 0]
    found = re.findall(r"client (\d+) failed: its Ray actor \d \(.*?\) ended \((.*)\)", caplog.text)
    # Ray may not know more yet than that nobody answers.
    gone = "its process or its node is gone"
    assert found[0][1] in ("its node is gone", gone)
    assert found[1][1] in ("killed, or ended by a client", gone)
    assert len(found) == 2
    assert int(found[1][0]) == LOST
    side = losing({2: int(found[0][0]), 3: LOST})
    alone, single = played(LocalGrid(side.app, 12, None, side.in_blocks))
    assert (models == alone).all()
    assert [report.assignment for report in reports] == [report.assignment for report in single]


def test_ctrl_c_ends_the_run_and_leaves_the_cluster(address: str, tmp_path: Path) -> None:
    import ray

    from florets.engines.ray_cluster import check_address, connected

    keys = [*SMALL, "num_rounds=100000", "strategy.stop_when_stable=false", f"results_dir={tmp_path}"]
    command = [sys.executable, "-m", "florets", *keys, "engine=ray", f"ray_address={address}"]
    # Whoever started the tests in the background may have had them ignore Ctrl-C, which a process inherits.
    heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=heeds
    )
    assert process.stdout is not None
    try:
        before = list[str]()
        for line in process.stdout:
            before.append(line)
            # A round's line comes before its checkpoint.
            if "round 2/" in line:
                break
        else:
            pytest.fail("".join(before))
        os.killpg(process.pid, signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(60.0) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert "interrupted; go on with: florets resume=" in said
    assert "Traceback" not in said
    assert "ray" not in said.lower().replace("engine-ray", "")
    check_address(address)
    with connected(address) as (total, _):
        assert total >= 1
        assert ray.is_initialized()
    assert not ray.is_initialized()
