import csv
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from results_examples import CLIENTS, FOUND, MIXED, NO_ROUNDS, TRUTH, evaluations, report

from florets.conf.compose import compose
from florets.engines.engine import run
from florets.reports.scores import metrics_of
from florets.reports.summary import RunSummary, reaches, round_line, stability_words, summarise
from florets.server_app.recorder import Recorder
from florets.strategies.base.report import STABLE_FROM
from florets.studies.sweep.jobs import Job
from florets.studies.sweep.report import summary_markdown, write_sweep
from florets.task.tested import Evaluation, Work


def summary_of(lines, **extra):
    return summarise(lines, experiment="tiny", strategy="clove", seed=3, folder="here", **extra)


def test_a_line_holds_the_figures_of_its_round():
    line = round_line(report(4, participants=("00", "02", "03"), assignment=MIXED), TRUTH)

    assert line["round"] == 4
    assert line["phase"] == "clustering"
    assert line["ari"] == 0.0
    # Truth 0 1 1, found 0 0 1: one pair wrongly together, one wrongly apart, one rightly apart.
    assert line["ari_participants"] == -0.5
    assert line["accuracy"] == 0.75
    assert line["accuracy_std"] == pytest.approx(math.sqrt(1 / 32))
    assert (line["loss"], line["loss_std"], line["train_loss"]) == (0.25, 0.0, 0.5)
    assert line["cluster_sizes"] == [3, 1]
    assert (line["participants"], line["evaluated"], line["diverged"]) == (3, 4, 0)
    assert (line["bytes_down"], line["bytes_up"]) == (3000, 1000)
    assert line["seconds"] == {"losses": 0.2, "train": 0.5, "total": 1.0}
    assert line["replies"] == {"ok": 8, "error": 0, "missing": 0, "invalid": 0}


def test_the_ari_of_anchors_alone_is_told_but_ends_no_search():
    anchors = {"00": 0, "02": 1}
    few = round_line(report(1, phase="moment_descent", assignment=anchors), TRUTH)
    assert (few["ari"], reaches(few, 0.9)) == (1.0, False)
    # Where every client is an anchor, and where clients have not taken part yet, it counts.
    assert reaches(round_line(report(1, phase="moment_descent"), TRUTH), 0.9)
    assert reaches(round_line(report(1, assignment=anchors), TRUTH), 0.9)
    lines = [{**few, "round": number} for number in range(1, 11)]
    summary = summary_of([*lines, round_line(report(11, phase="refine"), TRUTH)])
    assert (summary.first_round_ari_90, summary.ari_at_10, summary.final_ari) == (11, None, 1.0)


def test_a_run_is_summed_up():
    lines = [round_line(report(r, assignment=MIXED if r < 3 else FOUND, stable=r >= 6), TRUTH) for r in range(1, 13)]
    summary = summary_of(lines)
    assert summary == replace(
        NO_ROUNDS,
        experiment="tiny",
        strategy="clove",
        seed=3,
        rounds=12,
        final_accuracy=0.75,
        final_loss=0.25,
        final_ari=1.0,
        ari_at_10=1.0,
        first_round_ari_90=3,
        round_of_stability=6,
        bytes_down=36000,
        bytes_up=12000,
        seconds=12.0,
        folder="here",
        final_ari_clients=4,
        final_ari_of=4,
        final_metrics=metrics_of(evaluations().values()),
        final_num_clusters=2,
    )
    assert RunSummary.from_json(summary.to_json()) == summary


def test_a_clustering_that_the_last_round_froze_is_stable_from_the_next():
    lines = [round_line(report(1), TRUTH), round_line(report(2, details={STABLE_FROM: 3}), TRUTH)]
    summary = summary_of(lines)
    assert (summary.rounds, summary.round_of_stability) == (2, 3)
    assert stability_words(summary) == "stable after round 2"
    # Gone on with, the run has the same answer.
    summary = summary_of([*lines, round_line(report(3, stable=True), TRUTH)])
    assert (summary.round_of_stability, stability_words(summary)) == (3, "stable from round 3")


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


def recorded(folder):
    counts = {"00": [(1, 1, 40)], "02": [(0, 0, 20), (0, 1, 10)], "03": [(0, 0, 10)]}
    sums = {key: SimpleNamespace(confusion=np.array(cells)) for key, cells in counts.items()}
    tests = {
        key: Evaluation(
            20, 0.25, accuracy, scores={"balanced_accuracy": accuracy / 2, "macro_f1": 0.25}, sums=sums.get(key)
        )
        for key, accuracy in zip(TRUTH, (0.5, 0.75, 1.0, 0.75), strict=True)
    }
    with Recorder(folder, "k: 2\n", "tiny", "clove", 0, 1, quiet=True) as recorder:
        recorder.clients(CLIENTS)
        recorder.round(report(1, evaluations=tests, work=Work(2.0, 1_500_000, 0)))
        models = {"0/w": np.zeros(2, dtype=np.float32)}
        return recorder.finish(models, tests, FOUND, pictures=False)


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
    for text in ("worst tenth", "1.5 million gradients", "balanced accuracy"):
        assert text in page


def test_a_sweep_shows_the_worst_tenth_and_files_all_figures(tmp_path):
    summary = recorded(tmp_path / "run")
    better = replace(
        summary, seed=1, final_metrics={"accuracy": {**summary.final_metrics["accuracy"], "worst_tenth": 0.7}}
    )
    jobs = [Job({"seed": str(s.seed)}, summary=replace(s, folder="gone")) for s in (summary, better)]
    text = summary_markdown(jobs)
    head, _, row = [line for line in text.splitlines() if line.startswith("|")][:3]
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    assert cells["worst 10 % of clients"] == "60.00 ± 14.14"
    write_sweep(tmp_path / "sweep", jobs)
    rows = list(csv.DictReader((tmp_path / "sweep" / "summary.csv").read_text().splitlines()))
    assert [row["accuracy.worst_tenth"] for row in rows] == ["0.5", "0.7"]
    assert [row["macro_f1.mean"] for row in rows] == ["0.25", ""]


@pytest.mark.usefixtures("no_pictures")
def test_a_run_tells_each_clients_scores_and_what_it_cost(tmp_path):
    keys = ["num_clients=4", "k=2", "num_rounds=2", "task.num_clusters=2", "loss_matrix=false", "quiet=true"]
    keys += [
        "first_round=evaluate",
        "statistics=true",
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
