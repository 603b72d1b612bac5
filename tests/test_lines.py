"""Lines, summaries and clients' rows: no field is ever absent, and a run of each kind of result has its pictures."""

import json
from pathlib import Path

import pytest

from florets.reports.clients import ClientRow, read_clients, write_clients
from florets.reports.quantities import known_quantities
from florets.reports.run_figures import sweep_figure
from florets.reports.scores import test_cells
from florets.reports.summary import UNMEASURED, Distances, RoundLine, read_line, read_lines, round_line
from florets.server_app.progress import describe
from florets.studies.one_run import headline
from florets.task.tested import Evaluation
from tests.results_examples import CLIENTS, FOUND, MIXED, TRUTH, Recorder, evaluations, report

test_cells.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever the name says

LOSSES = evaluations(dict.fromkeys(TRUTH), 0.25)
"""Of a regression, or an autoencoder: no accuracy."""


def scored(evaluation: Evaluation, name: str) -> dict[str, Evaluation]:
    return {key: Evaluation(20, evaluation.loss, evaluation.accuracy, scores={name: 0.75}) for key in TRUTH}


TUNED = {key: Evaluation(20, 0.25, 0.5, tuned=Evaluation(20, 0.125, 0.75)) for key in TRUTH}
KINDS = {
    "accuracy": (evaluations(), UNMEASURED, ["ari", "accuracy"]),
    "R2": (scored(LOSSES["00"], "r2"), UNMEASURED, ["ari", "loss"]),
    "AUC": (scored(TUNED["00"], "auc"), UNMEASURED, ["ari", "accuracy"]),
    "model error": (LOSSES, Distances(model_error=0.5), ["ari", "loss", "model_error"]),
    "cluster error": (
        evaluations(),
        Distances(cluster_error=0.125, cluster_loss=0.5),
        ["ari", "accuracy", "cluster_error"],
    ),
    "nothing": ({}, UNMEASURED, ["ari"]),
}


@pytest.mark.pictures
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_result_ends_in_its_report_with_pictures(tmp_path: Path, kind: str) -> None:
    tests, distances, shown = KINDS[kind]
    with Recorder(tmp_path / "run", "k: 2\n", "tiny", "clove", 0, 2, quiet=True) as recorder:
        recorder.clients(CLIENTS)
        for number in (1, 2):
            made = report(number, assignment=MIXED if number == 1 else FOUND, evaluations=tests)
            assert describe(recorder.round(made, distances))
        summary = recorder.finish({}, tests, FOUND)
    lines = read_lines(tmp_path / "run")
    assert [set(line) for line in lines] == [RoundLine.__required_keys__] * 2
    assert known_quantities([lines]) == shown
    assert (tmp_path / "run" / "curves.png").is_file()
    assert (tmp_path / "run" / "report.html").is_file()
    assert sweep_figure({"clove": [lines]}) is not None
    assert "ARI 1.00" in headline(summary)
    assert [row.score("test", "loss") for row in read_clients(tmp_path / "run")] == [
        tests[key].loss if tests else None for key in TRUTH
    ]


def test_a_line_that_lacks_a_key_or_has_another_is_refused_by_name() -> None:
    line = dict(round_line(report(1), TRUTH))
    assert read_line(json.dumps(line)) == line
    without = {name: value for name, value in line.items() if name != "tuned_loss"}
    for text in (json.dumps(without), json.dumps({**line, "tuned_model_error": None}), "[]"):
        with pytest.raises(ValueError, match=r"not a round's line: it needs the keys .*'tuned_loss'.*run the exper"):
            read_line(text)


def test_clients_are_read_as_they_were_written(tmp_path: Path) -> None:
    tests = Evaluation(20, 0.25, 0.5, Evaluation(5, 0.75, None), Evaluation(20, 0.125, 0.75), {"auc": 0.875})
    cells = {
        "test_examples": 20,
        "test_loss": 0.25,
        "test_accuracy": 0.5,
        "validation_examples": 5,
        "validation_loss": 0.75,
        "validation_accuracy": None,
        "tuned_test_loss": 0.125,
        "tuned_test_accuracy": 0.75,
        "test_auc": 0.875,
    }
    assert list(test_cells(tests).items()) == list(cells.items())
    rows = [
        ClientRow("a, b", 0, 1, 100, "cpu", "north", [0.25, 0.75], cells),
        ClientRow("c", None, None, 9, "cuda:0", None, [], dict.fromkeys(cells)),
        ClientRow("d", 2, 0, 7, "cpu", None, [1.0], dict.fromkeys(cells)),
    ]
    write_clients(tmp_path / "clients.csv", rows)
    assert read_clients(tmp_path) == rows
    assert rows[0].score("test", "auc") == 0.875
    assert (rows[0].score("tuned_test", "auc"), rows[1].score("test", "loss")) == (None, None)
    (tmp_path / "clients.csv").write_text((tmp_path / "clients.csv").read_text().replace("cpu", "cpu,x"))
    with pytest.raises(ValueError, match="line 2 has more cells than the header"):
        read_clients(tmp_path)
