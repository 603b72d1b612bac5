"""Figures over the clients' scores, what the work cost, and where they are found: lines, tables, summary, report."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from results_examples import CLIENTS, FOUND, TRUTH, report

from florets.conf.compose import compose
from florets.engines.engine import run
from florets.reports.console import number
from florets.reports.run_page import predictions, scores
from florets.reports.scores import FIGURES, metrics_of
from florets.reports.summary import RunSummary, round_line
from florets.server_app.recorder import Recorder
from florets.server_app.sweep.sweep_groups import JobResult
from florets.server_app.sweep.sweep_report import summary_markdown, write_sweep
from florets.strategies.base.context import confusions_of
from florets.strategies.base.report import Evaluation
from florets.task.wire.replies import Work
from florets.task.wire.scores import SentScores
from florets.task.wire.scores import TestResult as ClientTest

# Accuracies 0.0, 0.1, ... 1.0 of eleven clients, the first with 9 test samples and the others with 1.
ELEVEN = [Evaluation(9 if i == 0 else 1, 1 - i / 10, i / 10, scores={"auc": i / 10} if i else {}) for i in range(11)]


def test_the_figures_of_a_score_over_the_clients():
    found = metrics_of(ELEVEN)
    accuracy = found["accuracy"]
    assert accuracy["clients"] == 11
    assert accuracy["mean"] == pytest.approx(0.5)
    assert accuracy["std"] == pytest.approx(math.sqrt(0.1))
    assert accuracy["weighted"] == pytest.approx(5.5 / 19)
    # A tenth of eleven clients, rounded up, are two.
    assert (accuracy["worst"], accuracy["worst_tenth"]) == (0.0, pytest.approx(0.05))
    assert [accuracy[q] for q in ("q10", "q25", "median", "q75", "q90")] == pytest.approx([0.1, 0.25, 0.5, 0.75, 0.9])
    # The worst loss is the largest.
    assert (found["loss"]["worst"], found["loss"]["worst_tenth"]) == (1.0, pytest.approx(0.95))
    # A client whose test set does not define a score does not count.
    assert (found["auc"]["clients"], found["auc"]["worst"]) == (10, 0.1)


def test_a_client_that_diverged_makes_the_figures_unknown_and_json_takes_them():
    found = metrics_of([*ELEVEN, Evaluation(1, math.inf, 0.5)])
    assert found["loss"] == {"clients": 12, **dict.fromkeys(FIGURES)}
    assert found["accuracy"]["mean"] == pytest.approx(0.5)
    json.dumps(found, allow_nan=False)
    assert metrics_of([]) == {}


def test_a_line_tells_scores_and_work():
    line = round_line(report(1, work=Work(1.5, 800, 40)), TRUTH)
    assert (line["client_seconds"], line["gradient_passes"], line["loss_passes"]) == (1.5, 800, 40)
    assert line["metrics"]["accuracy"]["worst"] == 0.5
    assert round_line(report(1, evaluations={}), TRUTH)["metrics"] == {}


def test_counts_of_a_models_clients_are_added_up():
    def test_of(*counts):
        return ClientTest(0.5, 0.5, 4, scores=SentScores({}, counts))

    tests = [
        ("a", test_of(0, 0, 2, 1, 0, 2)),
        ("b", test_of(0, 1, 4)),
        ("c", test_of(0, 0, 1, 0, 1, 1, 2, 2, 2)),
        ("d", test_of()),
        ("nobody", test_of(9, 9, 4)),
    ]
    assignment = {"a": 1, "b": 0, "c": 1, "d": 1}
    assert confusions_of(tests, assignment) == {0: [0, 1, 4], 1: [0, 0, 3, 0, 1, 1, 1, 0, 2, 2, 2, 2]}


def recorded(folder):
    tests = {
        key: Evaluation(20, 0.25, accuracy, scores={"balanced_accuracy": accuracy / 2, "macro_f1": 0.25})
        for key, accuracy in zip(TRUTH, (0.5, 0.75, 1.0, 0.75), strict=True)
    }
    with Recorder(folder, "k: 2\n", "tiny", "clove", 0, 1, quiet=True) as recorder:
        recorder.clients(CLIENTS)
        recorder.round(report(1, evaluations=tests, work=Work(2.0, 1_500_000, 0)))
        models = {"0/w": np.zeros(2, dtype=np.float32)}
        counts = {0: [0, 0, 30, 0, 1, 10], 1: [1, 1, 40]}
        return recorder.finish(models, tests, FOUND, pictures=False, confusions=counts)


def test_files_summary_and_report_have_the_scores(tmp_path):
    summary = recorded(tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "run" / "clients.csv").read_text().splitlines()))
    assert [row["test_balanced_accuracy"] for row in rows] == ["0.25", "0.375", "0.5", "0.375"]
    counts = list(csv.reader((tmp_path / "run" / "confusion.csv").read_text().splitlines()))
    assert counts == [
        ["model", "label", "predicted", "samples"],
        *(["0", "0", "0", "30"], ["0", "0", "1", "10"], ["1", "1", "1", "40"]),
    ]
    assert summary.final_worst_tenth == 0.5
    assert summary.final_metrics["balanced_accuracy"]["mean"] == 0.375
    assert (summary.client_seconds, summary.gradient_passes) == (2.0, 1_500_000)
    assert RunSummary.from_json(summary.to_json()) == summary
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in (
        "worst tenth",
        "1.5 million gradients",
        "balanced accuracy",
        "model 0: 30 of 40 test samples are right",
    ):
        assert text in page


def test_a_summary_of_before_the_scores_is_read():
    told = json.loads(RunSummary("t", "clove", 0, 1, 0.9, 0.5, 1.0, None, 1, None, 3, 1, 4.0, "here").to_json())
    for name in ("final_metrics", "client_seconds", "gradient_passes", "loss_passes"):
        del told[name]
    assert RunSummary.from_json(json.dumps(told)).final_worst_tenth is None


def test_a_sweep_shows_the_worst_tenth_and_the_clients_work_and_files_all_figures(tmp_path):
    summary = recorded(tmp_path / "run")
    better = replace(
        summary, seed=1, final_metrics={"accuracy": {**summary.final_metrics["accuracy"], "worst_tenth": 0.7}}
    )
    jobs = [JobResult({"seed": str(s.seed)}, None, s, None) for s in (summary, better)]
    text = summary_markdown(jobs)
    head, _, row = [line for line in text.splitlines() if line.startswith("|")][:3]
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    assert cells["worst 10 % of clients"] == "60.00 ± 14.14"
    assert cells["client s"] == "2.0 ± 0.0"
    write_sweep(tmp_path / "sweep", [replace(job, summary=replace(job.summary, folder="gone")) for job in jobs])
    rows = list(csv.DictReader((tmp_path / "sweep" / "summary.csv").read_text().splitlines()))
    assert [row["accuracy.worst_tenth"] for row in rows] == ["0.5", "0.7"]
    assert [row["macro_f1.mean"] for row in rows] == ["0.25", ""]


def test_tables_that_tell_nothing_or_would_be_too_large_are_left_out():
    plain = RunSummary("t", "clove", 0, 1, 0.9, 0.5, 1.0, None, 1, None, 3, 1, 4.0, "here")
    assert scores(plain) == []
    assert predictions([]) == []
    many = [{"model": "0", "label": str(label), "predicted": "0", "samples": "1"} for label in range(40)]
    assert predictions(many) == []
    assert [number(count) for count in (7, 1234, 2_500_000, 3e9)] == [
        "7",
        "1.23 thousand",
        "2.5 million",
        "3 billion",
    ]


@pytest.mark.usefixtures("no_pictures")
def test_a_run_tells_each_clients_scores_and_what_it_cost(tmp_path):
    keys = ["num_clients=4", "k=2", "num_rounds=2", "task.num_clusters=2", "loss_matrix=false", "quiet=true"]
    keys += [
        "first_round=evaluate",
        "strategy=ifca",
        f"results_dir={tmp_path}",
        "task.partition_options.samples_per_client=50",
    ]
    summary = run(compose(keys), keys)
    line = json.loads((tmp_path / "quickstart").rglob("rounds.jsonl").__next__().read_text().splitlines()[0])
    # IFCA: the losses of two models on 50 samples of 4 clients, and one epoch of training on them.
    assert (line["loss_passes"], line["gradient_passes"]) == (2 * 50 * 4, 50 * 4)
    assert line["client_seconds"] > 0
    assert line["metrics"]["macro_f1"]["clients"] == 4
    assert summary.gradient_passes == 2 * line["gradient_passes"]
    counts = csv.DictReader(next(tmp_path.rglob("confusion.csv")).read_text().splitlines())
    assert sum(int(row["samples"]) for row in counts) == 4 * 50
