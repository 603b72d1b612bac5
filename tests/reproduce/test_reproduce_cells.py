"""Cells of `florets reproduce`: their order, their data, none is run twice, and commands that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.saved import beyond_defaults
from florets.conf.schema import as_plain
from florets.papers.cells import Place, in_order, places
from florets.papers.item import Line, find_item
from florets.papers.run import BUSY
from florets.reports.folder import FolderLock
from florets.server_app.build import build_task, one_task_kept
from tests.reproduce_item import ITEM, breaks, interrupt, results, rows_of


def test_first_seeds_come_first_and_methods_on_the_same_data_one_after_the_other(item: Path) -> None:
    cells = in_order(list(places(find_item(str(item)), {"results_dir": "x"}, item.parent)))
    told = [(cell.place.row.name, cell.seed, cell.place.column.name) for cell in cells]
    of_four = [[("four", seed, column) for column in ("clove", "fedavg")] for seed in range(3)]
    assert told == [*of_four[0], ("two", 0, "clove"), *of_four[1], *of_four[2]]
    assert all("pictures=false" in cell.overrides for cell in cells)
    assert len({cell.folder for cell in cells}) == len(cells) == 7
    with one_task_kept():
        tasks = [build_task(cell.config) for cell in cells]
        assert tasks[0] is tasks[1]
        assert len(set(map(id, tasks))) == 4
    assert build_task(cells[0].config) is not build_task(cells[0].config)


def test_an_interrupted_grid_goes_on_and_runs_no_finished_cell_again(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        breaks(patch, 3, interrupt)
        assert main(["reproduce", "item.yaml", "results_dir=results"]) == 130
    told = capsys.readouterr()
    # As it was typed: it can be copied.
    assert "the same command goes on: florets reproduce item.yaml results_dir=results\n" in told.err
    assert "7 cells: 2 finished, 1 stopped, 4 not run" in told.out
    states = [row["state"] for row in rows_of(results(item) / "cells.csv")]
    assert states == ["finished", "not run", "not run", "finished", "not run", "not run", "stopped"]
    assert main(["reproduce", "item.yaml"]) == 0
    assert max(Counter(ran).values()) == 1
    assert len(ran) == 7
    assert main(["reproduce", "item.yaml"]) == 0
    assert len(ran) == 7


def test_a_run_of_other_settings_does_not_count(item: Path, ran: list[tuple[str, int, int]]) -> None:
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    (record,) = (item.parent / "results" / "reproduce" / "runs").rglob("seed-*.json")
    values = json.loads(record.read_text())
    # A key that this run did not know yet had its default, which is what is asked for.
    del values["config"]["eval_every"], values["config"]["averaging"], values["config"]["personal"]
    record.write_text(json.dumps(values))
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    assert len(ran) == 1
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    ran.clear()
    values["config"]["train"]["learning_rate"] = 7.0
    record.write_text(json.dumps(values))
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    assert len(ran) == 1
    values = json.loads(record.read_text())
    # The default is 4 rotations, and two are asked for.
    del values["config"]["task"]["num_clusters"]
    record.write_text(json.dumps(values))
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    assert len(ran) == 2


def test_a_cell_that_fails_is_named_and_tried_again(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("no such luck")

    with monkeypatch.context() as patch:
        breaks(patch, 3, fail)
        assert main(["reproduce", "item.yaml"]) == 1
    text = (results(item) / "table.md").read_text()
    assert "7 cells: 6 finished, 1 failed." in text
    assert "- 2 rotations | CLoVE & co | seed 0: failed: ValueError: no such luck" in text
    assert main(["reproduce", "item.yaml"]) == 0
    assert "7 cells: 7 finished." in (results(item) / "table.md").read_text()


def test_a_cell_that_another_process_runs_is_left_to_it(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    (record,) = (item.parent / "results" / "reproduce" / "runs").rglob("seed-*.json")
    record.unlink()
    folder = record.with_suffix("")
    (folder / "report.html").unlink()
    with FolderLock(folder):
        assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    assert len(ran) == 1
    assert f"2 rotations | CLoVE & co | seed 0: stopped: {BUSY}" in capsys.readouterr().out
    assert "stopped after round 2" in (results(item) / "table.md").read_text()


def test_places_share_a_run_only_where_their_settings_are_equal() -> None:
    def settings(*overrides: str) -> str:
        return Place(Line({}, "r", "r"), Line({}, "c", "c"), overrides, 1, compose(overrides)).settings

    different = [
        *(settings(f"strategy={name}") for name in ("clove", "ifca", "fedavg", "local", "stocfl", "oracle")),
        *(settings("strategy=clove", text) for text in ("k=3", "train.learning_rate=0.5", "num_rounds=3")),
        settings("strategy=clove", "task.partition_options={angles: [0, 180]}", "k=2", "task.num_clusters=2"),
        settings("strategy=clove", "strategy.memory=true"),
        settings("experiment=digits_label_skew", "strategy=clove"),
    ]
    assert len(set(different)) == len(different)
    # What is typed at its default, where the run is, how its preset is called and the order of options make no other.
    assert settings("strategy=clove", "seed=3", "results_dir=there", "strategy.memory=false") == different[0]
    orders = ("{angles: [0, 180], seed: 1}", "{seed: 1, angles: [0, 180]}")
    assert len({settings(f"task.partition_options={text}", "k=2", "task.num_clusters=2") for text in orders}) == 1


def test_of_a_strategy_that_is_gone_all_settings_count() -> None:
    gone = as_plain(compose(["strategy=clove"])) | {"strategy": {"name": "gone", "radius": 3.0}}
    assert {key: value for key, value in beyond_defaults(gone).items() if key.startswith("strategy.")} == {
        "strategy.name": "gone",
        "strategy.radius": 3.0,
    }


def test_data_that_no_cell_can_have_are_refused_once_before_any_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "item.yaml", "task.data=mnist", "data_dir=."]) == 2
    assert capsys.readouterr().err.count("no folder MNIST/raw/") == 1
    assert not ran


def test_cells_without_data_are_left_out_and_the_others_run(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    item.write_text(ITEM.replace("overrides: [k=2, task", "overrides: [task.data=mnist, k=2, task"))
    assert main(["reproduce", "item.yaml", "columns=clove", "data_dir=."]) == 0
    assert capsys.readouterr().err.count("no folder MNIST/raw/") == 1
    assert ran == [("clove", 4, 0), ("clove", 4, 1), ("clove", 4, 2)]


@pytest.mark.slow
def test_killed_twice_every_cell_is_run_once(tmp_path: Path) -> None:
    small = "num_clients=4, num_rounds=3, 'task.model_options.hidden=[8]', eval_every=10"
    (tmp_path / "item.yaml").write_text(ITEM.replace("num_rounds=2", small).replace("seeds: 3", "seeds: 4"))
    line = [sys.executable, "-m", "florets", "reproduce", "item.yaml", "n_jobs=2"]
    runs = tmp_path / "results" / "reproduce" / "runs"
    for wanted in (2, 5):
        process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, env=os.environ)
        give_up = time.monotonic() + 300
        while len(list(runs.rglob("seed-*.json"))) < wanted and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finished = {record.with_suffix("") / "summary.json" for record in runs.rglob("seed-*.json")}
    before = {path: path.stat().st_mtime_ns for path in finished}
    assert len(before) >= 5
    # The workers end with the process that started them.
    time.sleep(2)
    subprocess.run(line, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert "9 cells: 9 finished." in (results(tmp_path / "item.yaml") / "table.md").read_text()
    assert {path: path.stat().st_mtime_ns for path in finished} == before
