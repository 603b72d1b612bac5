"""The parts of a deployed exchange, measured on a federation on this machine.

A node's log says when it receives a message and when its reply has been sent. Between the two lie Flower's executor,
a new Python process with its imports, and the client's own work; from there to the next message Flower's pauses until
the server looks and the node asks again, the server's work, and the wait for the slowest node.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from benchmarks import bench_speed
from benchmarks.own_process import in_own_process
from florets.deploy.demo import EXPERIMENT, exchanges_of, follow, rounds_of, wait_online
from florets.deploy.demo_data import write_folders
from florets.deploy.federation import Federation
from florets.engines.flower_processes import PROJECT

_RECEIVED, _SENT = "Receiving:", "Sent successfully"
_LOOK_SECONDS = 0.05


class LogWatch(threading.Thread):
    """Notes when each node's log says that a message has come, and that a reply has gone."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(daemon=True)
        self._federation = federation
        self._over = threading.Event()
        self.times: dict[str, dict[str, list[float]]] = {
            name: {_RECEIVED: [], _SENT: []} for name in federation.nodes
        }

    def run(self) -> None:
        """Look until `end`."""
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for name, times in self.times.items():
                log = self._federation.log(name)
                for words, found in times.items():
                    found += [now] * (log.count(words) - len(found))

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def exchange_parts(rounds: int) -> dict[str, float]:
    """Run CLoVE on four SuperNodes; return the median seconds of an exchange and of its parts, by name."""
    with tempfile.TemporaryDirectory(prefix="florets-deploy-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        clusters = write_folders(root / "data")
        with Federation(root / "federation") as federation:
            for name, cluster in clusters.items():
                federation.register(name, root / "data" / name, cluster)
                federation.start(name)
            wait_online(federation, len(clusters))
            watch = LogWatch(federation)
            watch.start()
            overrides = f"strategy=clove k=2 strategy.stop_when_stable=false num_rounds={rounds}"
            settings = {"experiment": EXPERIMENT, "overrides": overrides, "results-dir": str(root / "results")}
            lines = rounds_of(follow(federation, federation.run(PROJECT, settings), root / "results"))
            watch.end()
    replies = sum(line["replies"]["ok"] for line in lines)
    imports = {
        module: in_own_process(bench_speed.__file__, "imported", module)["cpu"]
        for module in ("flwr.app", "florets.client_app.app")
    }
    return {
        "an exchange": statistics.median(line["seconds"]["total"] / exchanges_of(line) for line in lines),
        **_node_parts(watch.times),
        "  of that the client's own work, as it says": sum(line["client_seconds"] for line in lines) / replies,
        "  of that imports alone (CPU, measured by itself)": imports["florets.client_app.app"],
        "    of those Flower's": imports["flwr.app"],
    }


def _node_parts(times: Mapping[str, Mapping[str, list[float]]]) -> dict[str, float]:
    """Return the medians over nodes and messages, without the first message, which meets a node at rest."""
    at_node, between = list[float](), list[float]()
    for found in times.values():
        pairs = list(zip(found[_RECEIVED], found[_SENT], strict=False))
        at_node += [sent - received for received, sent in pairs[1:]]
        between += [after[0] - before[1] for before, after in pairwise(pairs[1:])]
    return {
        "reply sent to next message: pauses, server, other nodes": statistics.median(between),
        "message received to reply sent: executor, process, client": statistics.median(at_node),
    }
