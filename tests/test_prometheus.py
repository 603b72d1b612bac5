"""Figures for Prometheus: scraped during a run, left out where unknown, refused where they cannot be served."""

import json
import socket
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import florets
from florets.conf.problems import ConfigError
from florets.server_app.prometheus import PrometheusTracker
from florets.server_app.tracker import RunEnd, RunStart
from tests.results_examples import evaluations, record

KEYS: dict[str, Any] = {
    "num_clients": 4, "k": 2, "task": {"num_clusters": 2}, "num_rounds": 2, "quiet": True, "pictures": False,
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        one.name + "".join(f" {name}={value}" for name, value in sorted(one.labels.items())): one.value
        for family in families
        for one in family.samples
    }


class Scraping:
    """Scrapes after each round; called after the tracker that serves."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[Mapping[str, Any]] = []
        self.seen: list[dict[str, float]] = []

    def on_start(self, run: RunStart) -> None:
        self.seen.append(scraped(self.port))

    def on_round(self, line: Mapping[str, Any], clients: Mapping[str, Mapping[str, float]]) -> None:
        self.lines.append(line)
        self.seen.append(scraped(self.port))

    def on_end(self, end: RunEnd) -> None:
        pass


def test_figures_are_those_of_the_rounds_lines(tmp_path: Path) -> None:
    scraping = Scraping(port := free_port())
    done = florets.run(**KEYS, results_dir=tmp_path, prometheus=port, tracker=scraping)
    before, first, second = scraping.seen
    lines = scraping.lines
    assert (before["florets_round"], before["florets_rounds"]) == (0, 2)
    assert "florets_accuracy" not in before
    assert (first["florets_round"], second["florets_round"]) == (1, 2)
    for name in ("accuracy", "loss", "ari", "train_loss", "participants"):
        assert second[f"florets_{name}"] == pytest.approx(lines[1][name])
    for way in ("down", "up"):
        total = sum(line[f"bytes_{way}"] for line in lines)
        assert second[f"florets_bytes_total direction={way}"] == total
    assert second["florets_replies_total outcome=ok"] == sum(line["replies"]["ok"] for line in lines)
    assert second["florets_replies_total outcome=missing"] == 0
    seconds = sum(line["seconds"]["train"] for line in lines)
    assert second["florets_seconds_total part=train"] == pytest.approx(seconds)
    assert [second[f"florets_group_clients group={k}"] for k in range(2)] == lines[1]["cluster_sizes"]
    assert second[f"florets_phase_info phase={lines[1]['phase']}"] == 1
    assert any(name.startswith("florets_run_info experiment=quickstart") for name in second)
    # Nobody is served afterwards, and the address is no part of what the run is.
    with pytest.raises(OSError, match="refused"):
        scraped(port)
    assert str(port) not in str(done.folder)


def test_what_is_unknown_or_not_finite_is_left_out(tmp_path: Path) -> None:
    with closing(PrometheusTracker(port := free_port())) as tracker:
        tracker.on_start(RunStart(tmp_path, tmp_path, "a", "tiny", {}, 3))
        record(tmp_path / "run", evaluations=evaluations({"00": None}, loss=float("nan")))
        for text in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines():
            tracker.on_round(json.loads(text), {})
        found = scraped(port)
        assert found["florets_diverged"] == 1
        assert {"florets_accuracy", "florets_loss"}.isdisjoint(found)
        assert found["florets_ari"] == 1.0
        assert not [name for name, value in found.items() if value != value]


def test_a_port_in_use_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"prometheus={port}: cannot be served there \(address already in use\)"
        ):
            florets.run(**KEYS, results_dir=tmp_path, prometheus=port)
    assert not list(tmp_path.rglob("rounds.jsonl"))
    # One that is refused for another reason leaves its port free.
    for _ in range(2):
        with pytest.raises(ConfigError, match="tracker=nobody"):
            florets.run(**KEYS, results_dir=tmp_path, prometheus=port, tracker="nobody:Nobody")
