"""The figures of a run for Prometheus: a tracker that serves them over HTTP as long as the run goes on."""

import os
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any, Literal, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from florets.conf.problems import ConfigError
from florets.conf.validate import figures_address
from florets.reports.summary import Figure, RoundLine, round_seconds
from florets.server_app.tracker import ClientFigures, RunEnd, RunStart

_TESTED: dict[Figure, str] = {
    "accuracy": "mean test accuracy over the clients, in the last round with a test",
    "loss": "mean test loss over the clients, in the last round with a test",
}
_OF_A_ROUND: dict[Literal[Figure, "participants", "unplaced", "diverged"], str] = {
    "ari": "adjusted Rand index of the groups, where true ones are known",
    "train_loss": "mean training loss",
    "participants": "clients that were sampled",
    "unplaced": "clients without a model",
    "diverged": "tested clients whose loss is not finite",
}


class PrometheusTracker:
    """Serve the figures at ``http://<address>/metrics``.

    Parameters
    ----------
    address
        A port of this machine, or ``<host>:<port>``.

    Raises
    ------
    ConfigError
        If nothing can be served there.
    """

    def __init__(self, address: int | str) -> None:
        host, port = figures_address(address)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._figures: _Figures | None = None
        try:
            self._server: tuple[_Server, Thread] = start_http_server(port, host, self._registry)
        except OSError as error:
            # Of an unknown host the number is none of the system's.
            number = error.errno or 0
            reason = (os.strerror(number) if number > 0 else str(error)).lower()
            raise ConfigError(
                f"prometheus={address}: cannot be served there ({reason}); give another port."
            ) from error

    def on_start(self, run: RunStart) -> None:
        """Serve what is known before the first round."""
        self._figures = _Figures(run)
        self._registry.register(self._figures)

    def on_round(self, line: RoundLine, clients: ClientFigures) -> None:
        """Take in a round."""
        if self._figures is not None:
            self._figures.take(line)

    def on_end(self, end: RunEnd) -> None:
        """Do nothing: whoever made it closes it, also where the run never started."""

    def close(self) -> None:
        """Serve no longer."""
        server, thread = self._server
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(Protocol):
    def shutdown(self) -> None: ...

    def server_close(self) -> None: ...


class _Figures(Collector):
    """What the rounds so far come to; a figure that is not known, or not finite, is left out."""

    def __init__(self, run: RunStart) -> None:
        self._run = run
        self._line: RoundLine | None = None
        self._tested: RoundLine | None = None
        self._totals: dict[tuple[str, str], float] = {}
        self._time = time.time()

    def take(self, line: RoundLine) -> None:
        """Add a round."""
        of_round = {("seconds", part): taken for part, taken in line["seconds"].items() if part != "total"}
        of_round |= {("replies", kind): number for kind, number in line["replies"].items()}
        of_round |= {("bytes", "down"): line["bytes_down"], ("bytes", "up"): line["bytes_up"]}
        totals = self._totals | {key: self._totals.get(key, 0.0) + value for key, value in of_round.items()}
        # A request in between finds the figures of one round or of the next: none is changed in place.
        self._totals, self._time, self._line = totals, time.time(), line
        if line["evaluated"]:
            self._tested = line

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        run, line, totals = self._run, self._line, self._totals
        names = {"experiment": run.experiment, "name": run.name}
        names |= {key: str(run.params.get(key)) for key in ("strategy.name", "seed")}
        yield _info("run", "the run", {key.removesuffix(".name"): value for key, value in names.items()})
        yield _gauge("rounds", "rounds that the run has in all", run.num_rounds)
        yield _gauge("round", "last completed round", run.done_rounds if line is None else line["round"])
        yield _gauge("round_end_timestamp_seconds", "when that round was over, or the run began", self._time)
        for what, label, text in (
            ("seconds", "part", "wall time by part of a round"),
            ("replies", "outcome", "clients' replies: ok, error, missing (late) or invalid"),
            ("bytes", "direction", "payload to the clients (down) and back (up)"),
        ):
            family = CounterMetricFamily(f"florets_{what}", f"{text}, since this process began", labels=[label])
            for (of, value), total in sorted(totals.items()):
                if of == what:
                    family.add_metric([value], total)
            yield family
        tested = {} if self._tested is None else {name: self._tested[name] for name in _TESTED}
        of_round = {} if line is None else {name: line[name] for name in _OF_A_ROUND}
        for name, figure in (tested | of_round).items():
            if figure is not None:
                yield _gauge(name, (_TESTED | _OF_A_ROUND)[name], figure)
        if line is not None:
            yield _info("phase", "phase of the last round", {"phase": line["phase"]})
            yield _gauge("round_seconds", "wall time of the last round", round_seconds(line))
            yield _gauge("stable", "1 once the groups are frozen", line["stable"])
            sizes = GaugeMetricFamily("florets_group_clients", "clients of a group", labels=["group"])
            for group, number in enumerate(line["cluster_sizes"]):
                sizes.add_metric([str(group)], number)
            yield _gauge("groups", "groups that clients are in", line["num_clusters"])
            yield sizes


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"florets_{name}", text, value=float(value))


def _info(name: str, text: str, value: dict[str, Any]) -> InfoMetricFamily:
    return InfoMetricFamily(f"florets_{name}", text, value=value)
