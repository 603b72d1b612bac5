"""`florets.Sweep`: the frame, tables, comparison and figures of a sweep's folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import florets
from florets.conf.problems import ConfigError
from florets.reports.summary import RunSummary
from florets.reports.tables import Cell, ResultTable
from florets.server_app.sweep.sweep_csv import read_jobs, write_jobs
from florets.server_app.sweep.sweep_groups import JobResult
from tests.results_examples import record

BASE = RunSummary("tiny", "clove", 0, 10, 0.9, 0.5, 1.0, 1.0, 2, 5, 3_000_000, 1_000_000, 4.0, "nowhere")


def job(strategy: str, k: int, seed: int, accuracy: float | None, **changes: Any) -> JobResult:
    keys = {"strategy": strategy, "k": str(k), "seed": str(seed), "task.data": "my_data"}
    if accuracy is None:
        return JobResult(keys, None, None, "no memory")
    summary = replace(BASE, strategy=strategy, seed=seed, final_accuracy=accuracy, **changes)
    return JobResult(keys, Path("nowhere"), summary, None, 1.0, "accuracy")


ACCURACIES = {("clove", 2): (0.80, 0.70, 0.60), ("clove", 4): (0.9, 0.9, 0.9), ("per_fedavg", 2): (0.81, 0.72, 0.63)}
JOBS = [
    job(strategy, k, seed, accuracy, final_validation=accuracy - 0.1, warnings=["one", "two"])
    for (strategy, k), found in ACCURACIES.items()
    for seed, accuracy in enumerate(found)
] + [job("per_fedavg", 4, 0, None), job("per_fedavg", 4, 1, 0.9)]


@pytest.fixture
def sweep(tmp_path: Path) -> florets.Sweep:
    write_jobs(tmp_path / "summary.csv", JOBS)
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
    jobs = [job("clove", 2, 0, 0.5, final_metrics=scores, first_round_ari_90=None, best_round=7), JOBS[-2]]
    write_jobs(tmp_path / "summary.csv", jobs)
    done, failed = read_jobs(tmp_path)
    assert jobs[0].summary is not None
    assert done.summary == replace(
        jobs[0].summary, final_metrics={"accuracy": scores["accuracy"], "auc": {"mean": None}}
    )
    assert (done.overrides, failed.error) == (jobs[0].overrides, "no memory")


def texts(table: ResultTable) -> list[list[str]]:
    """Return the texts with stars for what is marked, the first row the head."""
    body = [
        [name, *(c.text + "*" * c.is_best for c in row)] for name, row in zip(table.rows, table.cells, strict=True)
    ]
    return [[table.corner, *table.columns], *body]


def test_keys_in_rows_and_columns_with_the_best_strategy_marked(sweep: florets.Sweep) -> None:
    assert texts(sweep.table(rows="strategy", columns="k")) == [
        ["strategy", "2", "4"],
        # One of two failed: the mean is of one. Both show the same number, and none is marked.
        ["CLoVE", "70.00 ± 10.00", "90.00 ± 0.00"],
        ["Per-FedAvg", "72.00 ± 9.00*", "90.00"],
    ]
    # Strategies are compared with each other, wherever they stand.
    turned = texts(sweep.table(rows="k", columns="strategy"))
    assert turned[1] == ["2", "70.00 ± 10.00", "72.00 ± 9.00*"]
    assert not any("*" in text for row in texts(sweep.table("strategy", "k", best=None)) for text in row)


def test_all_that_varies_in_rows_and_measures_in_columns(sweep: florets.Sweep) -> None:
    table = texts(sweep.table(columns=["accuracy", "validation", "megabytes"]))
    assert table[0] == ["strategy", "accuracy %", "validation accuracy %", "MB"]
    assert [row[0] for row in table[1:]] == ["CLoVE k=2", "CLoVE k=4", "Per-FedAvg k=2", "Per-FedAvg k=4"]
    assert table[1][1:] == ["70.00 ± 10.00", "60.00 ± 10.00", "4.0 ± 0.0"]
    assert "1 of 11 jobs failed." in sweep.table().note
    by_k = sweep.table("k", ["accuracy"], where={"strategy": "clove"})
    assert texts(by_k) == [["k", "accuracy %"], ["2", "70.00 ± 10.00"], ["4", "90.00 ± 0.00*"]]
    assert by_k.means.loc["2", "accuracy %"] == pytest.approx(70.0)
    assert by_k.frame.loc["4", "accuracy %"] == "90.00 ± 0.00"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"rows": "strategy", "columns": ["accuracy"]},
            r"k: varies too \(2, 4\); name it in rows or columns, or choose",
        ),
        ({"rows": "stratgy"}, r"rows=stratgy: no such key varies\. Did you mean strategy\?"),
        (
            {"columns": ["acuracy"]},
            r"columns=acuracy: the sweep has no such measure or key\. Did you mean accuracy\?",
        ),
        ({"where": {"k": 3}}, "where: k=3: no job has these"),
    ],
)
def test_what_a_table_cannot_show_is_refused(sweep: florets.Sweep, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep.table(**asked)


def test_latex_has_rules_of_booktabs_bold_numbers_and_escaped_names(sweep: florets.Sweep) -> None:
    text = sweep.latex("task.data", ["accuracy"], where={"k": 4, "strategy": "clove"}, caption="A $k$", label="tab:k")
    assert text.splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{A $k$}",
        r"\label{tab:k}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"task.data & accuracy \% \\",
        r"\midrule",
        r"my\_data & 90.00 $\pm$ 0.00 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    assert r"Per-FedAvg & \textbf{72.00} $\pm$ 9.00 & 90.00 \\" in sweep.latex("strategy", "k")


def test_a_notebook_and_a_terminal_show_the_best_in_bold() -> None:
    table = ResultTable("a<b", ("x|y",), ("p", "q"), ((Cell("1 ± 0", 1.0), Cell("2 ± 0", 2.0)),)).marked(True, "rows")
    assert "<th>a&lt;b</th>" in table._repr_html_()
    assert "<td>1 ± 0</td><td><b>2 ± 0</b></td>" in table._repr_html_()
    assert r"| x\|y | 1 ± 0 | **2 ± 0** |" in str(table)


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
    turned = sweep.compare(against="per_fedavg", where={"k": 2})
    assert turned.loc["CLoVE"].difference == pytest.approx(-2.0)


def test_jobs_are_chosen_by_a_strategys_key_or_its_name(sweep: florets.Sweep) -> None:
    with pytest.raises(ConfigError, match=r"choose with where=\{'strategy': 'CLoVE'\}"):
        sweep.table("k", ["accuracy"])
    by_name = sweep.table("k", ["accuracy"], where={"strategy": "CLoVE"})
    assert texts(by_name) == texts(sweep.table("k", ["accuracy"], where={"strategy": "clove"}))


def test_a_measure_is_refused_by_its_own_word_and_failed_jobs_are_not_compared(tmp_path: Path) -> None:
    write_jobs(tmp_path / "summary.csv", [job("clove", 2, 0, 0.5), job("fedavg", 2, 0, None)])
    sweep = florets.Sweep(tmp_path)
    with pytest.raises(ConfigError, match="measure=acuracy: the sweep has no such measure"):
        sweep.compare("acuracy")
    with pytest.raises(ConfigError, match="nothing to compare: all of these jobs failed"):
        sweep.compare(where={"strategy": "fedavg"})


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
            jobs.append(JobResult({"strategy": strategy, "k": "2", "seed": str(seed)}, folder, summary, None))
    write_jobs(tmp_path / "summary.csv", jobs)
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
    (written,) = found.plot("ari", x="strategy").save(tmp_path / "ari.pdf")
    assert written.read_bytes().startswith(b"%PDF")
    with pytest.raises(ConfigError, match=r"measure=auc: rounds have no such figure"):
        found.plot("auc")
