import csv
from dataclasses import replace
from pathlib import Path

import pytest
from results_examples import record

from florets.reports.summary import RunSummary
from florets.server_app.sweep.sweep_groups import JobResult, group_jobs
from florets.server_app.sweep.sweep_measures import mean_std
from florets.server_app.sweep.sweep_report import summary_markdown, write_sweep

BASE = RunSummary("tiny", "clove", 0, 10, 0.9, 0.5, 1.0, 1.0, 2, 5, 3_000_000, 1_000_000, 4.0, "nowhere")


def job(strategy="clove", seed=0, extra=None, **changes):
    overrides = {"strategy": strategy, "seed": str(seed), "experiment": "tiny", **(extra or {})}
    summary = replace(BASE, strategy=strategy, seed=seed, **changes)
    return JobResult(overrides, Path(summary.folder), summary, None)


def failed(strategy="clove", seed=0, error="k: 30 models for 20 clients;\n  lower k"):
    return JobResult({"strategy": strategy, "seed": str(seed), "experiment": "tiny"}, None, None, error)


def cells(text, name):
    row = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_is_the_mean_and_sample_std_over_seeds():
    jobs = [
        job(seed=0, final_accuracy=0.5, final_ari=0.5, ari_at_10=0.25, first_round_ari_90=2, seconds=3.0),
        job(seed=1, final_accuracy=1.0, final_ari=1.0, ari_at_10=0.75, first_round_ari_90=5, seconds=5.0),
    ]
    text = summary_markdown(jobs)
    assert cells(text, "strategy") == [
        "strategy", "runs", "accuracy %", "ARI", "ARI at 10", "ARI ≥ 0.9 from", "stable from", "MB", "seconds",
    ]  # fmt: skip
    assert cells(text, "clove") == [
        "clove", "2", "75.00 ± 35.36",
        "0.75 ± 0.35", "0.50 ± 0.35", "3.5 ± 2.1 (2 of 2)", "5.0 ± 0.0",
        "4.0 ± 0.0", "4.0 ± 1.4",
    ]  # fmt: skip
    assert text.startswith("Sweep with experiment=tiny\n")


def test_the_title_says_what_was_run_and_not_where_or_how_it_was_shown():
    shared = {"results_dir": "/some/where", "quiet": "True", "k": "4"}
    text = summary_markdown([job("clove", seed, shared) for seed in (0, 1)])
    assert text.startswith("Sweep with experiment=tiny, k=4\n")


def test_a_figure_that_only_some_runs_have_says_of_how_many():
    jobs = [job(seed=0, first_round_ari_90=4), job(seed=1, first_round_ari_90=None, round_of_stability=None)]
    row = cells(summary_markdown(jobs), "clove")
    assert row[5] == "4.0 (1 of 2)"
    assert row[6] == "5.0 (1 of 2)"
    never = [job(seed=seed, first_round_ari_90=None) for seed in (0, 1)]
    assert cells(summary_markdown(never), "clove")[5] == "- (0 of 2)"
    assert mean_std([None, None]) == "-"
    assert mean_std([1, 2], "{:.1f}", 2) == "1.5 ± 0.7"


def test_groups_keep_the_order_of_the_command_and_name_what_varies():
    jobs = [job(s, seed, {"k": k}) for s in ("ifca", "clove") for k in ("4", "5") for seed in (0, 1)]
    common, groups = group_jobs(jobs)
    assert common == {"experiment": "tiny"}
    assert [group.label for group in groups] == ["ifca k=4", "ifca k=5", "clove k=4", "clove k=5"]
    assert [len(group.jobs) for group in groups] == [2, 2, 2, 2]


def test_a_job_that_gives_no_strategy_is_named_by_the_one_that_it_ran():
    overrides = {"seed": "0"}
    _, groups = group_jobs([JobResult(overrides, None, BASE, None)])
    assert groups[0].label == "clove"
    _, groups = group_jobs([JobResult(overrides, None, None, "no")])
    assert groups[0].label == "default strategy"


def test_failures_are_listed_in_one_line_each_and_their_group_says_how_many_ran():
    text = summary_markdown([job(seed=0), failed(seed=1)])
    assert cells(text, "clove")[1] == "1 of 2"
    assert (
        "1 of 2 jobs failed:\n\n- strategy=clove seed=1 experiment=tiny: k: 30 models for 20 clients; lower k" in text
    )


def test_a_loss_is_shown_where_a_run_has_no_accuracy():
    text = summary_markdown([job(final_accuracy=None, final_loss=0.03125)])
    assert cells(text, "strategy")[2] == "loss"
    assert cells(text, "clove")[2] == "0.03125"
    assert "loss" not in summary_markdown([job()])


def compared(jobs):
    """Return the rows of the comparison, by the group's label."""
    lines = summary_markdown(jobs).split("| interval")[-1].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows}


def test_differences_from_the_first_strategy_are_paired_by_the_seed():
    # Differences of 1, 2 and 3 points: mean 2, deviation 1, and t of 2 degrees of freedom is 4.303.
    accuracies = {"clove": (0.80, 0.70, 0.60), "ifca": (0.81, 0.72, 0.63), "fedavg": (0.5, 0.5)}
    jobs = [job(s, seed, final_accuracy=a) for s, found in accuracies.items() for seed, a in enumerate(found)]
    rows = compared(jobs)
    # Of 0.7 the logit is 0.8473, its derivative 1 / 0.21, the standard error 0.1 / sqrt(3): 0.8473 ± 1.1830.
    assert rows["clove"] == ["70.00", "[41.69, 88.39]", "", "", "", ""]
    # p = 1 - sqrt(12 / 14); the two pairs of the other comparison have no test.
    assert rows["ifca"][2:] == ["clove", "+2.00", "[-0.48, +4.48]", "p 0.074"]
    assert rows["fedavg"][3:] == ["-25.00", "[-88.53, +38.53]", ""]


def test_settings_are_compared_each_by_itself_and_one_strategy_with_its_first_setting():
    both = [job(s, seed, {"k": k}) for s in ("clove", "ifca") for k in "45" for seed in (0, 1)]
    rows = compared(both)
    assert (rows["ifca k=5"][2], rows["clove k=5"][2]) == ("clove k=5", "")
    alone = [job("clove", seed, {"k": k}) for k in "45" for seed in (0, 1)]
    assert compared(alone)["clove k=5"][2] == "clove k=4"
    assert "interval" not in summary_markdown([job("clove"), job("ifca")])
    apart = [job("clove", 0), job("clove", 1), job("ifca", 2)]
    assert compared(apart)["ifca"][3] == "no equal seeds"


def test_the_tables_are_there_as_latex(tmp_path):
    accuracies = {"clove": 0.8, "per_fedavg": 0.9}
    write_sweep(tmp_path, [job(s, seed, final_accuracy=a) for s, a in accuracies.items() for seed in (0, 1)])
    text = (tmp_path / "summary.tex").read_text()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"Per-FedAvg & 2 & \textbf{90.00} $\pm$ 0.00" in text
    assert text.count(r"\toprule") == 2
    assert r"accuracy \%" in text


def test_a_sweep_whose_jobs_all_failed_has_a_summary(tmp_path):
    text = write_sweep(tmp_path / "sweep", [failed(), failed("ifca")])
    assert "2 of 2 jobs failed" in text
    assert (tmp_path / "sweep" / "summary.md").read_text() == text
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == [
        "summary.csv",
        "summary.md",
        "summary.tex",
    ]


def test_a_sweep_without_jobs_says_so(tmp_path):
    assert write_sweep(tmp_path, []) == "The sweep had no jobs.\n"


def test_the_csv_has_a_row_for_each_job_in_order(tmp_path):
    write_sweep(tmp_path, [job(extra={"train.learning_rate": "0.1"}), failed("ifca", 7)])
    with (tmp_path / "summary.csv").open(newline="") as file:
        first, second = list(csv.DictReader(file))
    assert first["train.learning_rate"] == "0.1"
    assert (first["strategy"], first["final_accuracy"], first["error"]) == ("clove", "0.9", "")
    assert (second["strategy"], second["seed"], second["final_accuracy"]) == ("ifca", "7", "")
    assert second["error"].startswith("k: 30 models")


@pytest.mark.pictures
@pytest.mark.slow
def test_curves_are_drawn_from_the_runs_folders(tmp_path):
    jobs = []
    for strategy in ("clove", "ifca"):
        for seed in (0, 1):
            folder = tmp_path / strategy / f"seed-{seed}"
            summary = record(folder, seed, strategy)
            jobs.append(JobResult({"strategy": strategy, "seed": str(seed)}, folder, summary, None))
    text = write_sweep(tmp_path / "sweep", jobs)
    assert cells(text, "ifca")[2] == "75.00 ± 0.00"
    assert (tmp_path / "sweep" / "curves.png").stat().st_size > 10_000


@pytest.mark.pictures
@pytest.mark.slow
def test_many_groups_get_a_figure_for_each_setting(tmp_path):
    summary = record(tmp_path / "run")
    jobs = [
        JobResult({"strategy": strategy, "k": str(k)}, tmp_path / "run", replace(summary, strategy=strategy), None)
        for strategy in ("clove", "ifca", "fedavg")
        for k in (2, 3, 4)
    ]
    write_sweep(tmp_path / "sweep", jobs)
    names = sorted(path.name for path in (tmp_path / "sweep").glob("*.png"))
    assert names == ["curves-1.png", "curves-2.png", "curves-3.png"]
