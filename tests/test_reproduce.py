"""`florets reproduce`: items as files, cells that are run once, and a table that marks what is not finished."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app import main as command
from florets.server_app.build import build_task, make_data, one_task_kept
from florets.server_app.main import main
from florets.server_app.reproduce.cells import in_order, places
from florets.server_app.reproduce.item_file import find_item, item_names, read_item
from florets.server_app.reproduce.measures import MEASURES
from florets.server_app.reproduce.run import BUSY
from florets.server_app.results.folder import FolderLock
from florets.server_app.results.statistics import Spread, bootstrap, evidence, paired, signed_rank_p
from florets.server_app.results.summary import RunSummary
from florets.server_app.resume.go_on import Engine
from florets.task.task import Task
from tests import fake_cells
from tests.public_files import write_idx

ITEM = """
title: Two methods on turned digits
source: A paper, Table 3, p. 9
seeds: 3
overrides: [num_rounds=2, checkpoint_every=0]
rows:
  four: {label: 4 rotations, overrides: [k=4, task.num_clusters=4]}
  two: {label: 2 rotations, overrides: [k=2, task.num_clusters=2], after: 1, seeds: 1, leave_out: [fedavg]}
columns:
  clove: {label: CLoVE & co, overrides: [strategy=clove]}
  fedavg: {label: FedAvg, overrides: [strategy=fedavg], after: 2}
measures: [right_k, recovered, rounds_to_ari_90, accuracy, accuracy - fedavg, loss, megabytes]
plot: {kind: grid, measure: accuracy}
paper:
  - {source: Table 3, measure: accuracy, values: {four: {clove: 92.5 ± 0.4, fedavg: 71.5 ± 0.25}}}
  - {source: Table 3, measure: rounds_to_ari_90, values: {four: {clove: 8}}}
small: {cut: one seed and one row, seeds: 1, rows: [four]}
"""


@pytest.fixture
def item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "item.yaml").write_text(ITEM)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "item.yaml"


@pytest.fixture(autouse=True)
def no_plot(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Leave out the plot, which takes longer than runs that do no work, unless the test is marked `pictures`."""
    if request.node.get_closest_marker("pictures") is None:
        monkeypatch.setattr("florets.server_app.reproduce.plot.draw", lambda *_: [])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Strategy, K and seed of each run that was begun, in order; runs do no work."""
    begun: list[tuple[str, int, int]] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        begun.append((config.strategy.name, config.task.num_clusters, config.seed))
        return fake_cells.run(config, overrides)

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "resume", fake_cells.resume)
    return begun


def breaks(monkeypatch: pytest.MonkeyPatch, at: int, how: Callable[[], None]) -> None:
    """Let something happen in the middle of the n-th run."""
    real, count = command.run, iter(range(1, 1000))

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        if next(count) != at:
            return real(config, overrides)
        fake_cells.begin(config, fake_cells.results_folder(config, overrides))
        return how()  # type: ignore[return-value]  # it raises

    monkeypatch.setattr(command, "run", run)


def interrupt() -> None:
    raise KeyboardInterrupt


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def results(folder: Path, scale: str = "paper") -> Path:
    return folder.parent / "results" / "reproduce" / "item" / scale


# Items


BRIEFLY = ("discovery/recovery", "clove/table_5", "mixed_regression/figure_1")
"""Items that the default suite reads; the slow tests read all."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in BRIEFLY else pytest.mark.slow) for name in item_names()]
)
def test_every_item_is_read_at_its_scales_and_its_runs_are_accepted(name: str) -> None:
    item, small = find_item(name), find_item(name, "small")
    assert item.title
    assert small.cut
    assert small.seeds <= item.seeds
    # All cells, but of the largest every row and every column once: its 286 places would take seconds.
    large = len(item.rows) * len(item.columns) > 100
    parts = [replace(item, columns=item.columns[:1]), replace(item, rows=item.rows[:1])] if large else [item, small]
    for part in parts:
        assert not [place.problem for place in places(part, {}, Path("/")) if place.config is None]


def test_an_item_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "discovery/recover"]) == 2
    error = capsys.readouterr().err
    assert "discovery/recover: there is no such item. Did you mean discovery/recovery?" in error
    assert main(["reproduce"]) == 2
    assert "takes one item, and there is none. There are: " in capsys.readouterr().err


def test_a_file_that_does_not_exist_is_said_to_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "mine.yaml"]) == 2
    assert capsys.readouterr().err == (
        "florets: mine.yaml: there is no such file; florets reproduce --list names the items that come with it.\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rows=for"], "rows=for: item has no such row. Did you mean four?"),
        (["columns=clove,ifca"], "columns=ifca: item has no such column"),
        (["column=clove"], "column=clove: there is no such key. Did you mean columns?"),
        (["scale=small", "rows=two"], "rows=two: scale=small leaves it out; leave scale=small out to have it"),
        (["scale=small", "rows=fuor"], "rows=fuor: item has no such row. Did you mean four?"),
        (["scale=large"], "scale=large: must be paper or small"),
        (["n_jobs=0"], "n_jobs=0: must be an integer from 1"),
        (["seed=3"], "seed=3: the seeds are the item's"),
        (["strategy=fedprox"], "strategy=fedprox: columns have their own; columns=<name>,... chooses some"),
        (["train.learning_rat=3"], "train.learning_rat=3: there is no such key"),
        (["--lst"], "--lst: florets reproduce has no such option"),
        (["other.yaml"], "takes one item, and item.yaml, other.yaml are 2"),
    ],
)
def test_a_wrong_word_is_named(
    item: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["reproduce", "item.yaml", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (item.parent / "results").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds: 3", "seeds: none", "seeds: none: must be an integer from 1"),
        ("title: Two methods on turned digits", "titel: x", "titel: there is no such key. Did you mean title?"),
        ("  two: {label", "  four: {label", "cannot be read (four stands twice"),
        ("measures: [right_k", "measures: [right_q", "right_q: there is no such measure"),
        ("accuracy - fedavg", "accuracy - local", "local: there is no such column"),
        ("accuracy - fedavg", "right_k - fedavg", "a difference is <measure> - <column>"),
        ("leave_out: [fedavg]", "leave_out: [oracle]", "rows.two: oracle: there is no such column"),
        ("[strategy=clove]", "[strategy]", "columns.clove.overrides: strategy: is not of the form key=value"),
        ("[strategy=clove]", "[seed=1]", "columns.clove.overrides: seed: is not set here"),
        ("[strategy=clove]", "{strategy: clove}", "must be a list of key=value texts"),
        ("kind: grid", "kind: pie", "plot.kind: pie: must be grid or rows or curves"),
        ("{four: {clove: 92.5", "{fore: {clove: 92.5", "fore: there is no such row"),
        ("clove: 92.5 ± 0.4", "clove: .nan", "paper.0.values.four.clove: nan: must be a number"),
        ("values: {four: {clove: 8}}", "values: {four: {ifca: 8}}", "paper: ifca: there is no such column"),
        (
            "measure: rounds_to_ari_90, values: {four: {clove: 8",
            "measure: accuracy, values: {four: {clove: 8",
            "paper.1.values.four.clove: 8: this measure has a value there already",
        ),
        (
            "measures: [right_k, recovered, rounds_to_ari_90, accuracy, accuracy - fedavg, loss, megabytes]",
            "measures: accuracy",
            "measures: accuracy: must be a list of names",
        ),
        ("leave_out: [fedavg]", "leave_out: fedavg", "rows.two.leave_out: fedavg: must be a list of names"),
        ("leave_out: [fedavg]", "for_columns: [fedavg]", "rows.two.for_columns: ['fedavg']: must be a mapping"),
        ("plot:", "why: {locale: x}\nplot:", "why: locale: there is no such row, column or <row>.<column>"),
        ("plot:", "why: [x]\nplot:", "why: ['x']: must be a mapping"),
        (ITEM, "", "must be a mapping"),
        (ITEM, "{", "cannot be read"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(item: Path, old: str, new: str, message: str) -> None:
    assert old in ITEM
    item.write_text(ITEM.replace(old, new, 1))
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_item(item, "item")


def test_an_item_of_one_scale_has_no_small_one(item: Path) -> None:
    item.write_text(ITEM[: ITEM.index("small:")])
    with pytest.raises(ConfigError, match="scale=small: item has one scale alone"):
        read_item(item, "item", "small")


# Cells


def test_the_runs_that_matter_most_come_first(item: Path, ran: list[tuple[str, int, int]]) -> None:
    assert main(["reproduce", "item.yaml"]) == 0
    # Steps: 0 for CLoVE on four, 1 on two, 2 for FedAvg.
    assert ran == [("clove", 4, 0), ("clove", 4, 1), ("clove", 4, 2), ("clove", 2, 0)] + [
        ("fedavg", 4, seed) for seed in range(3)
    ]
    many = read_item(item, "item")
    cells = in_order(list(places(many, {"results_dir": "x"}, item.parent)))
    assert all("pictures=false" in cell.overrides for cell in cells)
    assert len({cell.folder for cell in cells}) == len(cells) == 7


def test_methods_on_the_same_data_come_one_after_the_other_and_share_them(item: Path) -> None:
    item.write_text(ITEM.replace(", after: 2", "").replace(", after: 1", ""))
    cells = in_order(list(places(read_item(item, "item"), {"results_dir": "x"}, item.parent)))
    told = [(cell.place.row.name, cell.seed, cell.place.column.name) for cell in cells]
    assert told == [("four", seed, column) for seed in range(3) for column in ("clove", "fedavg")] + [
        ("two", 0, "clove")
    ]
    with one_task_kept():
        tasks = [build_task(cell.config) for cell in cells]
        assert tasks[0] is tasks[1]
        assert len(set(map(id, tasks))) == 4
        # Before the clock of the first column begins, all of a row's data are there.
        make_data(cells[0].config)
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(Task, "build_client")
            assert len(build_task(cells[0].config).client(19).x_train)
    assert build_task(cells[0].config) is not build_task(cells[0].config)


@pytest.mark.slow
def test_a_run_on_data_of_the_run_before_is_the_same_to_the_bit(item: Path) -> None:
    found = []
    for columns in ("clove,fedavg", "fedavg"):
        folder = item.parent / str(len(columns))
        given = ["seeds=1", "rows=four", f"columns={columns}", f"results_dir={folder}"]
        assert main(["reproduce", "item.yaml", *given]) == 0
        (models,) = folder.rglob("fedavg/**/models.safetensors")
        found.append(models.read_bytes())
    assert found[0] == found[1]


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
    assert states == ["finished", "finished", "stopped", "not run", "not run", "not run", "not run"]
    assert main(["reproduce", "item.yaml"]) == 0
    assert max(Counter(ran).values()) == 1
    assert len(ran) == 7
    ended = [json.loads(text)["cell"] for text in (results(item) / "log.jsonl").read_text().splitlines()]
    assert len(ended) == len(set(ended)) == 7
    assert main(["reproduce", "item.yaml"]) == 0
    assert len(ran) == 7


def test_the_table_marks_what_is_not_finished(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        breaks(patch, 5, interrupt)
        assert main(["reproduce", "item.yaml"]) == 130
    text = (results(item) / "table.md").read_text()
    sections = dict(re.findall(r"## ([^\n]*)\n\n(.*?)\n\n", text, re.DOTALL))
    lines = {name: [re.sub(" +", " ", row) for row in body.splitlines()[2:]] for name, body in sections.items()}
    # Seeds 0, 1 and 2 of CLoVE: 4, 3 and 4 groups; accuracy 90, 91 and 92 %. FedAvg's first seed was stopped.
    assert lines["Right number of groups at the end"] == ["| 4 rotations | 2 of 3 |", "| 2 rotations | 1 of 1 |"]
    assert lines["Accuracy in %"] == [
        "| 4 rotations | 91.0 ± 1.0 | stopped after round 1 |",
        "| 2 rotations | 90.0 | -- |",
    ]
    assert lines["First round with an ARI of 0.9"] == [
        "| 4 rotations | 3.0 ± 1.4 (2 of 3) |",
        "| 2 rotations | 2.0 |",
    ]
    assert "3 published values: 2 off, 1 not finished." in text
    compared = [re.sub(" +", " ", row) for row in text.splitlines()]
    accuracies = [row for row in compared if " | accuracy in % (Table 3) | " in row]
    assert [row.partition(" | accuracy in % (Table 3) | ")[2] for row in accuracies] == [
        "92.5 ± 0.4 | 91.0 ± 1.0 | -1.5 | off by -1.5 |",
        "71.5 ± 0.25 | stopped after round 1 | | stopped after round 1 |",
    ]
    assert [row for row in compared if " | 8.0 | " in row] == [
        "| 4 rotations | CLoVE & co | first round with an ARI of 0.9 (Table 3) | 8.0 | 3.0 ± 1.4 (2 of 3) | -5.0 "
        "| off by -5.0 (2 of 3 seeds) |"
    ]
    assert lines["Accuracy in %, less that of FedAvg (equal seeds)"] == ["| 4 rotations | stopped after round 1 |"]
    # A loss stands where there is no accuracy.
    assert "Test loss" not in sections
    assert "7 cells: 4 finished, 1 stopped, 2 not run." in text


def test_the_screen_has_the_part_that_was_asked_for_and_the_files_have_the_whole(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "item.yaml", "rows=four", "columns=clove", "seeds=1"]) == 0
    shown = capsys.readouterr().out
    assert "| 4 rotations | 90.0" in shown
    assert "[1/3]" not in shown
    assert "not run" not in shown.split("# Two methods", 1)[1].rsplit("Table: ", 1)[0]
    assert "2 rotations" not in shown
    assert "FedAvg" not in shown.split("# Two methods", 1)[1]
    text = (results(item) / "table.md").read_text()
    assert "[1/3]" in text
    assert "2 rotations" in text
    assert main(["reproduce", "item.yaml", "--table"]) == 0
    assert text in capsys.readouterr().out


@pytest.mark.pictures
def test_differences_are_paired_and_verdicts_are_the_papers(item: Path, ran: list[tuple[str, int, int]]) -> None:
    item.write_text(ITEM.replace("92.5 ± 0.4", "90.8 ± 0.4"))
    assert main(["reproduce", "item.yaml"]) == 0
    entries = {(e["measure"], e["row"], e["column"]): e for e in rows_of(results(item) / "table.csv")}
    difference = entries["accuracy - fedavg", "four", "clove"]
    # 90, 91, 92 less 70: mean 21, sample deviation 1, t(2) = 4.303, so 21 ± 4.303 / sqrt(3).
    assert float(difference["mean"]) == pytest.approx(21.0)
    assert float(difference["low"]) == pytest.approx(21 - 4.3027 / 3**0.5, abs=1e-3)
    assert entries["accuracy", "four", "clove"]["verdict"] == "within the paper's spread"
    assert entries["accuracy", "four", "fedavg"]["verdict"] == "off by -1.5"
    successes = entries["recovered", "four", "clove"]
    assert (successes["successes"], successes["values"], successes["mean"]) == ("2", "3", "")
    tex = (results(item) / "table.tex").read_text()
    assert r"CLoVE \& co" in tex
    assert r"91.0 $\pm$ 1.0" in tex
    assert tex.count(r"\begin{tabular}") == 7
    assert (results(item) / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_ended_before_it_was_noted_is_not_run_again(item: Path, ran: list[tuple[str, int, int]]) -> None:
    assert main(["reproduce", "item.yaml"]) == 0
    records = sorted((item.parent / "results" / "reproduce" / "runs").rglob("seed-*.json"))
    assert len(records) == 7
    for record in records:
        record.unlink()
    assert main(["reproduce", "item.yaml"]) == 0
    assert len(ran) == 7


def test_a_run_of_other_settings_does_not_count(item: Path, ran: list[tuple[str, int, int]]) -> None:
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    (record,) = (item.parent / "results" / "reproduce" / "runs").rglob("seed-*.json")
    values = json.loads(record.read_text())
    assert "versions of the code" not in (results(item) / "table.md").read_text()
    # A key that this run did not know yet says nothing; another value of one that it knew does.
    del values["config"]["eval_every"]
    record.write_text(json.dumps(values))
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    assert len(ran) == 1
    values["values"]["code"] = "another"
    record.write_text(json.dumps(values))
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    assert "The runs were made by 2 versions of the code" in (results(item) / "table.md").read_text()
    ran.clear()
    values["config"]["train"]["learning_rate"] = 7.0
    record.write_text(json.dumps(values))
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two"]) == 0
    assert len(ran) == 1


def test_another_data_folder_is_another_run(item: Path, ran: list[tuple[str, int, int]]) -> None:
    for folder in ("here", "there", "here"):
        (item.parent / folder).mkdir(exist_ok=True)
        given = ["columns=clove", "rows=two", f"data_dir={folder}"]
        assert main(["reproduce", "item.yaml", *given, "task.data=own"]) == 0
    assert len(ran) == 2


def test_runs_on_generated_data_are_the_same_wherever_they_are_called(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [str(item), "columns=clove", "rows=two", f"results_dir={item.parent / 'r'}"]
    (item.parent / "elsewhere").mkdir()
    assert main(["reproduce", *given]) == 0
    monkeypatch.chdir(item.parent / "elsewhere")
    assert main(["reproduce", *given]) == 0
    assert main(["reproduce", *given, f"data_dir={item.parent}"]) == 0
    assert len(ran) == 1


def test_a_data_folder_has_one_table_however_it_is_spelled(item: Path, ran: list[tuple[str, int, int]]) -> None:
    (item.parent / "here").mkdir()
    for spelled in ("here", "./here/", str(item.parent / "here")):
        assert main(["reproduce", "item.yaml", "columns=clove", "rows=two", f"data_dir={spelled}"]) == 0
    assert len(ran) == 1
    assert len(list((item.parent / "results" / "reproduce").rglob("table.md"))) == 1


def test_a_folder_that_is_not_there_is_refused_once_before_any_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "item.yaml", "data_dir=nowhere"]) == 2
    assert capsys.readouterr().err.count("nowhere: there is no such folder") == 1
    assert not ran


def test_folders_may_hold_what_hydra_reads_as_its_own(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = item.parent / "a (copy), [1]"
    odd.mkdir()
    monkeypatch.chdir(odd)
    given = [str(item), "columns=clove", "rows=two", "results_dir='r (x)'"]
    assert main(["reproduce", *given, f"data_dir='{odd}'"]) == 0
    assert len(ran) == 1
    assert (odd / "r (x)" / "reproduce").is_dir()
    assert main(["reproduce", *given, f"data_dir='{odd}'"]) == 0
    assert len(ran) == 1


@pytest.mark.parametrize(("name", "told"), [("mnist", "no folder MNIST/raw/"), ("digit", "Did you mean 'digits'?")])
def test_data_that_no_cell_can_have_are_refused_once_before_any_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    assert main(["reproduce", "item.yaml", f"task.data={name}", "data_dir=."]) == 2
    assert capsys.readouterr().err.count(told) == 1
    assert not ran


def test_cells_without_data_are_left_out_and_the_others_run(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    item.write_text(ITEM.replace("overrides: [k=2, task", "overrides: [task.data=mnist, k=2, task"))
    assert main(["reproduce", "item.yaml", "columns=clove", "data_dir=."]) == 0
    assert capsys.readouterr().err.count("no folder MNIST/raw/") == 1
    assert ran == [("clove", 4, 0), ("clove", 4, 1), ("clove", 4, 2)]


def test_a_public_set_that_was_cut_short_is_told(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    for prefix, count in (("train", 40), ("t10k", 20)):
        write_idx(item.parent / "MNIST" / "raw", prefix, count, np.arange(count) % 10)
    item.write_text(ITEM.replace("overrides: [k=2, task", "overrides: [task.data=mnist, k=2, task"))
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=two", "data_dir=."]) == 0
    assert "has 60 samples, the public set 70,000" in capsys.readouterr().err
    assert len(ran) == 1


def test_more_seeds_than_the_item_has_are_refused(item: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "item.yaml", "seeds=99"]) == 2
    assert "seeds=99" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["clove/tabel_1"], ["rows=one"]])
def test_the_list_takes_no_item_and_no_choice(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_a_cell_that_fails_is_named_and_tried_again(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("no such luck")

    with monkeypatch.context() as patch:
        breaks(patch, 4, fail)
        assert main(["reproduce", "item.yaml"]) == 1
    text = (results(item) / "table.md").read_text()
    assert "7 cells: 6 finished, 1 failed." in text
    assert "- 2 rotations | CLoVE & co | seed 0: failed: ValueError: no such luck" in text
    assert main(["reproduce", "item.yaml"]) == 0
    assert "7 cells: 7 finished." in (results(item) / "table.md").read_text()


def test_a_stopped_run_with_checkpoints_goes_on_in_its_middle(
    item: Path, ran: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[Path] = []

    def resume(config: Config, folder: Path) -> RunSummary:
        resumed.append(folder)
        return fake_cells.resume(config, folder)

    monkeypatch.setattr(command, "resume", resume)
    item.write_text(ITEM.replace("checkpoint_every=0", "checkpoint_every=1"))
    with monkeypatch.context() as patch:
        breaks(patch, 2, interrupt)
        assert main(["reproduce", "item.yaml"]) == 130
    assert main(["reproduce", "item.yaml"]) == 0
    assert [folder.name for folder in resumed] == ["seed-1"]
    cells = rows_of(results(item) / "cells.csv")
    # What it cost in all is not known.
    assert [row["cpu_seconds"] == "" for row in cells] == [False, True, False, False, False, False, False]


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


def test_the_table_is_remade_without_a_run_and_the_list_says_how_far_items_are(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["reproduce", "item.yaml", "seeds=1"]) == 0
    before = (results(item) / "table.md").read_text()
    (results(item) / "table.md").unlink()
    begun = len(ran)
    assert main(["reproduce", "item.yaml", "--table"]) == 0
    assert (results(item) / "table.md").read_text() == before
    assert "91.0" not in before
    assert "90.0 [1/3]" in before
    assert len(ran) == begun == 3
    (item.parent / "items").mkdir()
    item.rename(item.parent / "items" / "item.yaml")
    monkeypatch.setattr("florets.server_app.reproduce.item_file.FOLDER", item.parent / "items")
    capsys.readouterr()
    assert main(["reproduce", "--list"]) == 0
    told = capsys.readouterr().out
    assert "item  Two methods on turned digits" in told
    assert "7 cells: 3 finished, 4 not run; 3 published values: 3 off" in told
    assert len(ran) == 3


@pytest.mark.slow
@pytest.mark.pictures
def test_curves_lack_runs_whose_folders_were_removed_and_say_so(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    item.write_text(ITEM.replace("kind: grid", "kind: curves"))
    assert main(["reproduce", "item.yaml", "rows=four", "seeds=2"]) == 0
    before = (results(item) / "table.md").read_text()
    (results(item) / "plot-four.png").unlink()
    (removed, *_) = (item.parent / "results").rglob("clove/*/seed-1")
    shutil.rmtree(removed)
    capsys.readouterr()
    assert main(["reproduce", "item.yaml", "--table"]) == 0
    told = capsys.readouterr().out
    assert "Not in the curves, as their runs' folders were removed: four/clove/seed-1\n" in told
    assert (results(item) / "table.md").read_text() == before
    assert (results(item) / "plot-four.png").is_file()


def test_the_small_scale_says_what_was_cut(item: Path, ran: list[tuple[str, int, int]]) -> None:
    assert main(["reproduce", "item.yaml", "scale=small"]) == 0
    assert ran == [("clove", 4, 0), ("fedavg", 4, 0)]
    text = (results(item, "small") / "table.md").read_text()
    assert "Small scale: one seed and one row." in text
    # What it has in common with the whole table is not run again.
    assert main(["reproduce", "item.yaml"]) == 0
    assert len(ran) == 7


@pytest.mark.pictures
@pytest.mark.slow
def test_a_run_without_pictures_has_all_else(tmp_path: Path) -> None:
    given = ["num_clients=4", "num_rounds=1", "task.model_options.hidden=[8]", "pictures=false", "strategy=discovery"]
    assert main([*given, f"results_dir={tmp_path}", "-q"]) == 0
    (page,) = tmp_path.rglob("report.html")
    # The key says nothing of what is computed: it is not in the folder's name.
    assert "pictures" not in str(page.relative_to(tmp_path))
    assert not list(tmp_path.rglob("*.png"))
    assert "<img" not in page.read_text()
    assert (page.parent / "loss_matrix.csv").is_file()


# Processes


@pytest.mark.slow
def test_cells_in_processes_survive_one_that_is_killed(item: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from florets.server_app.reproduce.command import main as reproduce

    item.write_text(ITEM.replace("strategy=fedavg", "strategy=ifca"))
    engine = Engine(fake_cells.run, fake_cells.resume)
    assert reproduce(["item.yaml", "n_jobs=2"], engine) == 1
    table = (results(item) / "table.md").read_text()
    assert "7 cells: 6 finished, 1 failed." in table
    assert "seed 2: failed: its process ended before it did" in table


@pytest.mark.slow
def test_killed_twice_every_cell_is_run_once(tmp_path: Path) -> None:
    small = "num_clients=4, num_rounds=3, 'task.model_options.hidden=[8]', eval_every=10"
    (tmp_path / "item.yaml").write_text(ITEM.replace("num_rounds=2", small).replace("seeds: 3", "seeds: 4"))
    line = [sys.executable, "-m", "florets.server_app.main", "reproduce", "item.yaml", "n_jobs=2"]
    log = results(tmp_path / "item.yaml") / "log.jsonl"

    def ended() -> list[str]:
        return [json.loads(text)["cell"] for text in log.read_text().splitlines()] if log.is_file() else []

    for wanted in (2, 5):
        process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, env=os.environ)
        give_up = time.monotonic() + 300
        while len(ended()) < wanted and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    runs = tmp_path / "results" / "reproduce" / "runs"
    finished = {record.with_suffix("") / "summary.json" for record in runs.rglob("seed-*.json")}
    before = {path: path.stat().st_mtime_ns for path in finished}
    assert len(before) >= 5
    # The workers end with the process that started them.
    time.sleep(2)
    subprocess.run(line, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert "9 cells: 9 finished." in (log.parent / "table.md").read_text()
    assert len(ended()) == len(set(ended()))
    assert {path: path.stat().st_mtime_ns for path in finished} == before


# Statistics


def test_spread_and_interval_by_hand() -> None:
    spread = Spread.of([1.0, 2.0, 3.0, 4.0])
    assert (spread.number, spread.mean) == (4, 2.5)
    assert spread.deviation == pytest.approx((5 / 3) ** 0.5)
    # t(3) at 97.5 % is 3.1824.
    assert spread.high - spread.mean == pytest.approx(3.1824 * (5 / 3) ** 0.5 / 2, abs=1e-4)
    assert Spread.of([7.0]).mean == 7.0
    assert Spread.of([7.0]).deviation != Spread.of([7.0]).deviation


def test_pairs_are_equal_seeds_and_few_have_no_test() -> None:
    assert paired({0: 1.0, 2: 5.0, 3: 1.0}, {2: 4.0, 0: 3.0, 9: 0.0}) == [-2.0, 1.0]
    assert signed_rank_p([1.0] * 5) is None
    assert signed_rank_p([0.0] * 8) is None
    # All six differences on one side: 2 / 2^6.
    assert signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)


def test_the_bootstrap_of_few_pairs_takes_all_samples() -> None:
    assert bootstrap([1.0]) is None
    assert bootstrap([1.0] * 6) is None
    # Of 27 samples each end is one, more than 2.5 %: the range.
    assert bootstrap([3.0, 1.0, 2.0]) == (1.0, 3.0)
    # Of 3,125 samples 1 has the mean 10, 20 have 8 and 160 have 6: with them the outer 79 are reached.
    low, high = bootstrap([0.0, 0.0, 0.0, 0.0, 10.0]) or (0.0, 0.0)
    assert (low, high) == (0.0, 6.0)
    assert evidence([3.0, 1.0, 2.0], "{:.0f}".format) == "bootstrap [1, 3]"
    assert evidence([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{:.0f}".format) == "p 0.031"
    assert evidence([1.0], "{:.0f}".format) == ""


@pytest.mark.parametrize(
    ("mean", "deviation", "shown"),
    [
        (0.04019, 0.00007697, "0.00008"),
        (0.04484, 0.003289, "0.00329"),
        (1.25e-7, 2e-9, "2e-09"),
        (12.0, 0.25, "0.25"),
    ],
)
def test_a_spread_has_the_decimals_of_its_mean(mean: float, deviation: float, shown: str) -> None:
    assert MEASURES["loss"].deviation(mean, deviation) == shown
    assert MEASURES["accuracy"].deviation(mean, deviation) == f"{deviation:.1f}"


# Pages

PAGE = """# Results

Text by hand.

<!-- reproduce item.yaml rows=four columns=clove measures=accuracy,right_k -->
an old table
<!-- end of reproduce -->

<!-- reproduce item.yaml scale=small num_rounds=9 -->
kept
<!-- end of reproduce -->
"""


def test_a_pages_tables_are_made_of_finished_cells_alone(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    page = item.parent / "page.md"
    page.write_text(PAGE)
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    ran.clear()
    for _ in range(2):
        assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert not ran
    text = page.read_text()
    assert text.startswith("# Results\n\nText by hand.\n\n<!-- reproduce item.yaml rows=four")
    assert "an old table" not in text
    assert "`florets reproduce item.yaml rows=four columns=clove`: 3 cells: 3 finished." in text
    assert text.count("| 4 rotations | 91.0 ± 1.0 |") == 1
    words = " ".join(text.split())
    assert "| 4 rotations | 2 of 3 |" in words
    assert "MB sent" not in words
    assert "| 92.5 ± 0.4 | 91.0 ± 1.0 | -1.5 |" in words
    # What nobody has run keeps what stands there.
    assert "num_rounds=9 -->\nkept\n<!-- end of reproduce -->" in text
    assert "no cell is finished; left as it was" in capsys.readouterr().out


def test_cells_that_are_stored_beside_a_page_are_not_run_again(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    (item.parent / "page.md").write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "seeds=2"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    done = list(ran)
    ran.clear()
    elsewhere = ["item.yaml", "results_dir=elsewhere"]
    assert main(["reproduce", *elsewhere, "stored=page"]) == 0
    # The third seeds alone: of two methods on four rotations.
    assert sorted(ran) == [("clove", 4, 2), ("fedavg", 4, 2)]
    assert len(done) + len(ran) == 7
    (table,) = Path("elsewhere").rglob("table.md")
    assert "7 cells: 7 finished." in table.read_text()
    # Without the folder only what was run there counts; a page has its own.
    capsys.readouterr()
    assert main(["reproduce", *elsewhere, "--table"]) == 0
    assert "7 cells: 2 finished, 5 not run." in capsys.readouterr().out
    for words, rule in (
        (["item.yaml", "stored=nowhere"], "no such folder"),
        (["--list", "stored=nowhere"], "no such"),
    ):
        assert main(["reproduce", *words]) == 2
        assert f"stored=nowhere: there is {rule}" in capsys.readouterr().err
    (item.parent / "page.md").write_text("<!-- reproduce item.yaml stored=page -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "--results-page", "page.md"]) == 2
    assert "a page has stored cells of its own" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["results_di=results", "batch_clients=auto", "seeds=1"])
def test_a_key_after_a_pages_name_that_makes_another_table_is_refused_and_costs_no_stored_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], key: str
) -> None:
    page = item.parent / "page.md"
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    before = {path.name: path.read_bytes() for path in [page, *(item.parent / "page").iterdir()]}
    assert main(["reproduce", "--results-page", "page.md", key]) == 2
    assert f"{key}: only data_dir and results_dir may follow a page's name." in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in [page, *(item.parent / "page").iterdir()]} == before


def test_stored_cells_outlive_an_edit_of_their_item(item: Path, ran: list[tuple[str, int, int]]) -> None:
    page = item.parent / "page.md"
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    first = page.read_text()
    item.write_text(ITEM.replace("num_rounds=2", "num_rounds=3"))
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    item.write_text(ITEM)
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    assert page.read_text() == first


def test_a_block_shows_the_seeds_that_it_asks_for(item: Path, ran: list[tuple[str, int, int]]) -> None:
    (item.parent / "page.md").write_text("<!-- reproduce item.yaml seeds=1 -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert "`florets reproduce item.yaml seeds=1`: 3 cells: 3 finished." in (item.parent / "page.md").read_text()


def test_two_files_of_one_name_are_not_one_item_of_a_page(item: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        (item.parent / folder).mkdir()
        (item.parent / folder / "item.yaml").write_text(ITEM)
    blocks = "".join(f"<!-- reproduce {name}/item.yaml -->\n<!-- end of reproduce -->\n\n" for name in "ab")
    (item.parent / "page.md").write_text(blocks)
    assert main(["reproduce", "--results-page", "page.md"]) == 2
    assert "line 4, <!-- reproduce b/item.yaml -->: b/item.yaml: a/item.yaml has the same name" in (
        capsys.readouterr().err
    )


def test_a_place_whose_settings_are_refused_is_marked_and_fails_the_command(
    item: Path, ran: list[tuple[str, int, int]]
) -> None:
    item.write_text(ITEM.replace("overrides: [strategy=clove]", "overrides: [strategy=clovee]"))
    assert main(["reproduce", "item.yaml"]) == 1
    table = " ".join((results(item) / "table.md").read_text().split())
    assert "7 cells: 3 finished, 4 refused." in table
    assert "| 4 rotations | refused | 70.0 ± 0.0 |" in table
    assert "| 2 rotations | refused | -- |" in table
    assert "| accuracy in % (Table 3) | 92.5 ± 0.4 | refused | | refused |" in table


def test_folders_that_cannot_be_made_are_refused_with_the_remedy(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    (item.parent / "file").write_text("")
    assert main(["reproduce", "item.yaml", "results_dir=file"]) == 2
    assert "cannot be made (Not a directory); name another folder: results_dir=DIR." in capsys.readouterr().err
    assert not ran


@pytest.mark.pictures
def test_a_pages_plot_is_drawn_where_its_runs_are_and_kept_where_not(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = item.parent / "page.md", item.parent / "page" / "item_paper.png"
    page.write_text("<!-- reproduce item.yaml rows=four columns=clove plot=yes -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "columns=clove", "seeds=2"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    text = page.read_text()
    assert "|\n\n![Two methods on turned digits](page/item_paper.png)\n\n<!-- end of reproduce -->" in text
    first = picture.read_bytes()
    assert first.startswith(b"\x89PNG")
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=four"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert picture.read_bytes() != first
    # Pictures of other rows are gone, and a page that is refused keeps its pictures.
    (picture.parent / "item_paper-two.png").write_bytes(b"old")
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert [path.name for path in picture.parent.glob("*.png")] == ["item_paper.png"]
    text, last = page.read_text(), picture.read_bytes()
    page.write_text(text.replace("plot=yes", "measures=loss_x plot=yes"))
    picture.write_bytes(b"kept")
    assert main(["reproduce", "--results-page", "page.md"]) == 2
    assert picture.read_bytes() == b"kept"
    page.write_text(text)
    picture.write_bytes(last)
    # Without the runs, or with some alone, the page and its picture are those of before.
    shutil.rmtree(next((item.parent / "results").glob("**/seed-1")))
    for results_dir in ("results", "none"):
        assert main(["reproduce", "--results-page", "page.md", f"results_dir={results_dir}"]) == 0
        assert (page.read_text(), picture.read_bytes()) == (text, last)
    assert "its plot is that of before, as the folder of no run is here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["page.md"], PAGE.replace("measures=", "plot=no measures="), "plot=no: must be yes, or left out"),
        (
            ["page.md"],
            PAGE.replace("measures=", "layout=rows measures="),
            "layout=rows: must be methods, or left out",
        ),
        (
            ["page.md"],
            2 * PAGE.replace("measures=", "plot=yes measures="),
            "item_paper has its pictures in a block above",
        ),
        (["page.md"], PAGE.replace("<!-- end of reproduce -->", ""), "has no end; close it with"),
        (["page.md"], PAGE.replace("end of reproduce", "end of reproduec"), "no such block. Did you mean reproduce?"),
        (["page.md"], PAGE.replace("<!-- reproduce", "<!-- reproduc"), "no such block. Did you mean reproduce?"),
        (["page.md"], PAGE.replace("right_k", "loss_x"), "measures=loss_x: item has no such measure"),
        (["page.md"], PAGE.replace("rows=four", "rows=five"), "rows=five: item has no such row"),
        (["no.md"], PAGE, "cannot be read"),
        ([], PAGE, "name one page"),
    ],
)
def test_what_is_wrong_with_a_page_is_named(
    item: Path,
    ran: list[tuple[str, int, int]],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    text: str,
    message: str,
) -> None:
    (item.parent / "page.md").write_text(text)
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=four", "seeds=1"]) == 0
    assert main(["reproduce", "--results-page", *words]) == 2
    assert message in capsys.readouterr().err
    assert (item.parent / "page.md").read_text() == text
