"""Faults of a deployment, on real processes: paused, full, too slow, with a wrong clock, of other versions."""

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from florets.commands.main import main
from florets.deploy.demo import follow
from florets.deploy.federation import Federation
from florets.engines.flower_run import write_app
from florets.task.data.demo_data import write_folders
from tests.test_deployment import DATA_DIR, ROOT, TRUE_CLUSTER, begun, rounds, start_again, wait_for

# Faults of many kinds
pytestmark = pytest.mark.slow

PAUSED, LATE = "pictures-2", "archive-1"
SECONDS = 900.0

# A node's Python imports this before all else: the clock that Flower reads, and the version that it says it has.
_SITE = """
import datetime, importlib.metadata, os


def _shift():
    with open(os.environ["FAULT_CLOCK"]) as file:
        return float(file.read() or 0)


if "FAULT_CLOCK" in os.environ:
    class datetime_(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + datetime.timedelta(seconds=_shift())

    datetime.datetime = datetime_

if "FAULT_FLOWER" in os.environ:
    _version = importlib.metadata.version
    importlib.metadata.version = lambda name: os.environ["FAULT_FLOWER"] if name == "flwr" else _version(name)
"""


class FaultyFederation(Federation):
    """A federation in which some nodes' kits have a line more, right at the top of their start.sh."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.faults: dict[str, str] = {}

    def start(self, name: str) -> None:
        script = self.kits / name / "start.sh"
        if (fault := self.faults.pop(name, None)) is not None:
            script.write_text(script.read_text().replace("set -eu\n", f"set -eu\n{fault}\n", 1))
        super().start(name)

    def family(self, name: str) -> list[psutil.Process]:
        process = self.nodes[name].process
        assert process is not None
        return [found := psutil.Process(process.pid), *found.children(recursive=True)]

    def has_ended(self, name: str) -> bool:
        process = self.nodes[name].process
        return process is not None and process.poll() is not None


def small_disk() -> str:
    """Return what gives a node a full disk for its state: one page, in a namespace of its own."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this system lets no user mount a disk")
    state = '"$(dirname "$0")/state"'
    return f'[ -n "${{FULL:-}}" ] || FULL=1 exec unshare -rm "$0"\nmount -t tmpfs -o size=4k none {state}'


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFederation]:
    """Four healthy nodes, of which one's clock can be set, one with a full disk, and two with other versions."""
    root = tmp_path_factory.mktemp("faults")
    clusters = write_folders(root / "data")
    config = {name: {DATA_DIR: str(root / "data" / name), TRUE_CLUSTER: own} for name, own in clusters.items()}
    for name in ("full-disk", "other-code", "other-flower"):
        config[name] = config["archive-1"]
    (root / "site").mkdir()
    (root / "site" / "sitecustomize.py").write_text(_SITE)
    (root / "clock").write_text("0")
    shutil.copytree(ROOT, root / "other", ignore=shutil.ignore_patterns(".*", "tests", "docs", "results"))
    with (root / "other" / "client_app" / "training.py").open("a") as file:
        file.write("# Another version.\n")
    (root / "other" / "florets" / "__init__.py").resolve(strict=True)
    with FaultyFederation(root / "federation") as started:
        site = f'export PYTHONPATH="{root / "site"}:$PYTHONPATH"'
        started.faults = {
            LATE: f'{site} FAULT_CLOCK="{root / "clock"}"',
            "full-disk": small_disk(),
            "other-code": f'export PYTHONPATH="{root / "other"}"',
            "other-flower": f"{site} FAULT_FLOWER=1.99.0",
        }
        started.add(config)
        yield started


def test_a_run_goes_on_with_a_paused_node_a_full_disk_other_code_and_a_clock_that_jumps(
    federation: FaultyFederation, tmp_path: Path
) -> None:
    app, results, clock = write_app(tmp_path / "app"), tmp_path / "results", federation.root.parent / "clock"
    settings = "strategy=fedavg num_rounds=500 eval_every=500 min_clients=4 round_timeout=100"
    run_id = begun(federation, settings, results, app)

    def whole_round_after(number: int) -> bool:
        return any(
            line["participants"] == 4 and line["replies"]["ok"] and line["replies"]["ok"] == line_total(line)
            for line in rounds(results)[number:]
        )

    wait_for("round 2", lambda: len(rounds(results)) >= 2, SECONDS)
    paused = federation.family(PAUSED)
    for process in paused:
        process.send_signal(signal.SIGSTOP)
    first = len(rounds(results))
    wait_for("two rounds without it", lambda: len(rounds(results)) >= first + 2, SECONDS)
    for process in reversed(paused):
        process.send_signal(signal.SIGCONT)
    back = len(rounds(results))
    wait_for("a round with all four", lambda: whole_round_after(back), SECONDS)

    clock.write_text("3600")
    wait_for(f"the end of {LATE}", lambda: federation.has_ended(LATE), SECONDS)
    federation.start(LATE)
    wait_for(f"the end of {LATE}", lambda: federation.has_ended(LATE), SECONDS)
    clock.write_text("0")
    start_again(federation, LATE)
    mended = len(rounds(results))
    wait_for("a round with all four", lambda: whole_round_after(mended), SECONDS)
    (marker,) = results.rglob("rounds.jsonl")
    assert main(["stop", str(marker.parent)]) == 0
    folder = follow(federation, run_id, results)

    lines, log = rounds(results), (folder / "run.log").read_text()
    lost = lines[first]["replies"]
    assert lost["missing"] + lost["error"] >= 1
    assert re.search(rf"no answer in time from client {PAUSED}|client {PAUSED} failed", log)
    assert re.search(r"client .*full-disk .*failed: An exception was raised .* \(its log says why\)", log)
    assert "No space left on device" in federation.log("full-disk")
    assert re.search(r"client other-flower cannot take part: it runs Flower 1\.99\.0, and the server", log)
    assert re.search(r"client other-code cannot take part: it runs other code .*Install the server's version", log)
    assert re.search(
        r"The clock of this machine is 3[56]\d\d s ahead of the clock of the server", federation.log(LATE)
    )
    summary = json.loads((folder / "summary.json").read_text())
    assert [name.split()[0] for name in summary["left_out"]] == ["full-disk", "other-code", "other-flower"]


def line_total(line: dict[str, dict[str, int]]) -> int:
    return sum(line["replies"].values())
