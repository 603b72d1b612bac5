"""Sweeps: the summary of their jobs, and `florets.Sweep`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import florets
from florets.conf.problems import ConfigError
from florets.reports.tables import Cell, ResultTable
from florets.studies.sweep.jobs import Job, read_jobs, write_jobs
from florets.studies.sweep.report import summary_markdown
from tests.results_examples import NO_ROUNDS, record

BASE = replace(
    NO_ROUNDS,
    rounds=10,
    final_accuracy=0.9,
    final_loss=0.5,
    final_ari=1.0,
    ari_at_10=1.0,
    first_round_ari_90=2,
    round_of_stability=5,
    bytes_down=3_000_000,
    bytes_up=1_000_000,
    seconds=4.0,
)


def job(strategy="clove", seed=0, extra=None, **changes):
    overrides = {"strategy": strategy, "seed": str(seed), "experiment": "tiny", **(extra or {})}
    summary = replace(BASE, strategy=strategy, seed=seed, **changes)
    return Job(overrides, summary.folder, summary)


def failed(strategy="clove", seed=0, error="k: 30 models for 20 clients;\n  lower k"):
    return Job({"strategy": strategy, "seed": str(seed), "experiment": "tiny"}, error=error)


def cells(text, name):
    row = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_is_the_mean_and_sample_std_over_seeds():
    jobs = [
        job(seed=0, final_accuracy=0.5, final_ari=0.5, first_round_ari_90=2, seconds=3.0),
        job(seed=1, final_accuracy=1.0, final_ari=1.0, first_round_ari_90=5, seconds=5.0),
    ]
    text = summary_markdown(jobs)
    assert cells(text, "strategy") == [
        "strategy", "runs", "accuracy %", "ARI", "ARI ≥ 0.9 from", "stable from", "MB", "seconds",
    ]  # fmt: skip
    assert cells(text, "clove") == [
        "clove", "2", "75.00 ± 35.36",
        "0.75 ± 0.35", "3.5 ± 2.1", "5.0 ± 0.0",
        "4.0 ± 0.0", "4.0 ± 1.4",
    ]  # fmt: skip
    assert text.startswith("Sweep with experiment=tiny\n")


def test_a_figure_that_only_some_runs_have_says_of_how_many():
    jobs = [job(seed=0, first_round_ari_90=4), job(seed=1, first_round_ari_90=None, round_of_stability=None)]
    row = cells(summary_markdown(jobs), "clove")
    assert row[4] == "4.0 (1 of 2)"
    assert row[5] == "5.0 (1 of 2)"
    never = [job("ifca", seed, first_round_ari_90=None) for seed in (0, 1)]
    assert cells(summary_markdown([*jobs, *never]), "ifca")[4] == "- (0 of 2)"


def test_failures_are_listed_in_one_line_each_and_their_group_says_how_many_ran():
    text = summary_markdown([job(seed=0), failed(seed=1)])
    assert cells(text, "clove")[1] == "1 of 2"
    assert (
        "1 of 2 jobs failed:\n\n- strategy=clove seed=1 experiment=tiny: k: 30 models for 20 clients; lower k" in text
    )


def compared(jobs):
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


def finished_job(strategy: str, k: int, seed: int, accuracy: float | None, **changes: Any) -> Job:
    keys = {"strategy": strategy, "k": str(k), "seed": str(seed), "task.data": "my_data"}
    if accuracy is None:
        return Job(keys, error="no memory")
    summary = replace(BASE, strategy=strategy, seed=seed, final_accuracy=accuracy, **changes)
    return Job(keys, "nowhere", summary, measure="accuracy")


ACCURACIES = {("clove", 2): (0.80, 0.70, 0.60), ("clove", 4): (0.9, 0.9, 0.9), ("per_fedavg", 2): (0.81, 0.72, 0.63)}
JOBS = [
    finished_job(strategy, k, seed, accuracy, final_validation=accuracy - 0.1, warnings=["one", "two"])
    for (strategy, k), found in ACCURACIES.items()
    for seed, accuracy in enumerate(found)
] + [finished_job("per_fedavg", 4, 0, None), finished_job("per_fedavg", 4, 1, 0.9)]


@pytest.fixture
def sweep(tmp_path: Path) -> florets.Sweep:
    write_jobs(tmp_path, JOBS)
    found = florets.load(tmp_path)
    assert isinstance(found, florets.Sweep)
    return found


def test_the_frame_has_a_row_for_each_job_failed_ones_too(sweep: florets.Sweep) -> None:
    frame = sweep.frame
    assert list(frame.strategy) == [job.overrides["strategy"] for job in JOBS]
    assert list(frame.k) == [2, 2, 2, 4, 4, 4, 2, 2, 2, 4, 4]
    assert frame.final_accuracy[:3].tolist() == [0.80, 0.70, 0.60]
    assert frame.error.dropna().tolist() == ["no memory"]


def test_jobs_are_read_as_they_were_written(tmp_path: Path) -> None:
    scores = {"accuracy": {"mean": 0.5, "worst_tenth": 0.25}, "auc": {"mean": None}}
    jobs = [
        finished_job(
            "clove", 2, 0, 0.5, final_metrics=scores, first_round_ari_90=None, best_round=7, warnings=["a", "b"]
        ),
        JOBS[-2],
    ]
    write_jobs(tmp_path, jobs)
    assert read_jobs(tmp_path) == jobs
    row = florets.Sweep(tmp_path).frame.iloc[0]
    assert (row["best_round"], row["accuracy.worst_tenth"], row["warnings"]) == (7, 0.25, "a; b")
    assert math.isnan(row["first_round_ari_90"])


def texts(table: ResultTable) -> list[list[str]]:
    """Return the texts with stars for what is marked, the first row the head."""
    body = [
        [name, *(c.text + "*" * c.is_best for c in row)] for name, row in zip(table.rows, table.cells, strict=True)
    ]
    return [[table.corner, *table.columns], *body]


def test_all_that_varies_in_rows_and_measures_in_columns(sweep: florets.Sweep) -> None:
    table = texts(sweep.table(columns=["accuracy", "validation", "megabytes"]))
    assert table[0] == ["strategy", "accuracy %", "validation accuracy %", "MB"]
    assert [row[0] for row in table[1:]] == ["CLoVE k=2", "CLoVE k=4", "Per-FedAvg k=2", "Per-FedAvg k=4"]
    assert table[1][1:] == ["70.00 ± 10.00", "60.00 ± 10.00", "4.0 ± 0.0"]
    assert "1 of 11 jobs failed." in sweep.table().note
    accuracy = sweep.table("accuracy")
    assert texts(accuracy)[1:3] == [["CLoVE k=2", "70.00 ± 10.00"], ["CLoVE k=4", "90.00 ± 0.00*"]]
    assert accuracy.means.loc["CLoVE k=2", "accuracy %"] == pytest.approx(70.0)
    assert accuracy.frame.loc["CLoVE k=4", "accuracy %"] == "90.00 ± 0.00"
    with pytest.raises(ConfigError, match=r"columns=acuracy: .* no such measure\. Did you mean accuracy\?"):
        sweep.table("acuracy")


def test_latex_has_rules_of_booktabs_bold_numbers_and_escaped_names(sweep: florets.Sweep) -> None:
    lines = sweep.table("accuracy").latex(caption="A $k$", label="tab:k").splitlines()
    assert lines[:5] == [
        r"\begin{table}", r"\centering", r"\caption{A $k$}", r"\label{tab:k}", r"\begin{tabular}{lr}",
    ]  # fmt: skip
    assert r"strategy & accuracy \% \\" in lines
    assert r"CLoVE k=2 & 70.00 $\pm$ 10.00 \\" in lines


def test_the_lower_of_two_is_best_where_that_is_good_and_nothing_is_best_alone() -> None:
    cells = ((Cell("1", 1.0),), (Cell("2", 2.0),), (Cell("-"),))
    table = ResultTable("", ("a", "b", "c"), ("loss",), cells)
    assert [row[0].is_best for row in table.marked(False).cells] == [True, False, False]
    assert [row[0].is_best for row in table.marked(None).cells] == [False] * 3
    assert not ResultTable("", ("a",), ("loss",), cells[:1]).marked(False).cells[0][0].is_best


def test_settings_are_compared_on_equal_seeds(sweep: florets.Sweep) -> None:
    frame = sweep.compare()
    row = frame.loc["Per-FedAvg k=2"]
    # Differences of 1, 2 and 3 points: p = 1 - sqrt(12 / 14), the only test of the table.
    assert (row.against, row.pairs, row.difference) == ("CLoVE k=2", 3, pytest.approx(2.0))
    assert row.p == row.p_holm == pytest.approx(1 - (12 / 14) ** 0.5)
    assert (row.difference_low, row.difference_high) == (
        pytest.approx(-0.484, abs=1e-3),
        pytest.approx(4.484, abs=1e-3),
    )
    assert frame.loc["Per-FedAvg k=4"].pairs == 1
    assert sweep.compare(against="per_fedavg").loc["CLoVE k=2"].difference == pytest.approx(-2.0)


def test_the_best_setting_is_that_of_the_validation_figures(sweep: florets.Sweep) -> None:
    assert sweep.best is not None
    assert sweep.best.overrides == {"k": "4", "task.data": "my_data", "strategy": "clove"}
    assert sweep.best.validation.mean == pytest.approx(0.8)


def test_figures_are_saved_in_three_formats(tmp_path: Path) -> None:
    jobs = []
    for strategy in ("clove", "ifca"):
        for seed in (0, 1):
            folder = tmp_path / strategy / f"seed-{seed}"
            summary = record(folder, seed, strategy)
            jobs.append(Job({"strategy": strategy, "k": "2", "seed": str(seed)}, str(folder), summary))
    write_jobs(tmp_path, jobs)
    found = florets.Sweep(tmp_path)
    picture = found.plot()
    assert [path.name for path in picture.save(tmp_path / "curves.v2")] == [
        "curves.v2.png", "curves.v2.pdf", "curves.v2.svg",
    ]  # fmt: skip
    # The lines end at the same values: a legend names them.
    first = picture.axes[0].get_legend()
    assert first is not None
    assert [text.get_text() for text in first.get_texts()] == ["CLoVE: 1.00", "IFCA: 1.00"]
    lines = picture.axes[0].get_lines()
    assert len({line.get_marker() for line in lines}) == len({line.get_linestyle() for line in lines}) == 2
    with pytest.raises(ConfigError, match=r"measure=auc: rounds have no such figure"):
        found.plot("auc")
