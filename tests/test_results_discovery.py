"""Evidence of a discovery in a run's folder and on the screen: the sentence, the picture, the warning."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_examples import CLIENTS, FOUND, evaluations, report

from florets.reports.summary import RunSummary
from florets.server_app.progress import describe
from florets.server_app.recorder import Recorder
from florets.strategies.base.report import ADVICE, EVIDENCE
from florets.strategies.core.folds import Groups
from florets.strategies.shared.fold_evidence import Evidence
from florets.studies import one_run

KEYS = ["00", "01", "02", "03"]
GROUPS = Groups(
    "groups",
    2,
    np.array([1, 0, 1, 0]),
    np.array([0.61, 0.5512, 0.3]),
    0.0025,
    np.array([[1, 0, 0.5, 0], [0, 1, 0, 0.25], [0.5, 0, 1, 0], [0, 0.25, 0, 1.0]]),
)


def groups(**changes: Any) -> Groups:
    return Groups(**{**vars(GROUPS), **changes})


def test_the_evidence_is_sorted_by_group_and_said_in_a_sentence() -> None:
    found = Evidence.of(GROUPS, KEYS, given=False)
    assert found.text == "2 groups of 2, 2 clients (p = 0.0025; score 0.61 at K = 2)"
    assert (found.clients, found.groups) == (("01", "03", "00", "02"), (0, 0, 1, 1))
    assert found.similarity[0] == (1.0, 0.25, 0.0, 0.0)
    assert found.details().keys() == {EVIDENCE}
    json.dumps(found.details(), allow_nan=False)


def test_each_answer_is_named_as_what_it_is() -> None:
    none = Evidence.of(groups(verdict="none", k=1, labels=np.zeros(4, np.int64), p_value=0.41), KEYS, False)
    assert none.text.startswith("no groups: the clients cannot be told apart (p = 0.41; score 0.61 at K = 2")
    differ = Evidence.of(groups(verdict="all_differ", k=4, labels=np.arange(4)), KEYS, False)
    assert differ.text.startswith("every client differs: groups of clients explain less than the 4 clients alone")
    assert "strategy=local" in str(differ.details()[ADVICE])
    few = Evidence.of(groups(verdict="none", k=1, p_value=float("nan")), KEYS, False)
    assert few.text == "groups cannot be tested for: too few records or clients; one model for all"
    assert few.p_value is None
    # Two pairs and three folds: 6 ways in each of two folds, and none of them to be below the level.
    blind = groups(verdict="none", k=1, labels=np.zeros(4, np.int64), p_value=0.031, best=2, p_far_apart=1 / 36)
    assert Evidence.of(blind, KEYS, False, level=0.03).verdict == "none"
    few = Evidence.of(blind, KEYS, False)
    assert "too few records or clients (p = 0.031; score 0.61 at K = 2)" in few.text
    assert "k=2 fits best (score 0.61); give k=, or more records" in few.advice
    given = Evidence.of(groups(p_value=float("nan")), KEYS, True)
    assert given.text == "2 groups of 2, 2 clients, as k says (score 0.61 at K = 2)"
    placed = replace(given, small=1)
    assert placed.text.endswith("; 1 client with too few samples placed afterwards")


def finished(folder: Path, found: Evidence) -> tuple[RunSummary, str]:
    with Recorder(folder, "k: auto\n", "tiny", "discovery", 0, 2, quiet=True) as recorder:
        recorder.clients(CLIENTS)
        line = recorder.round(report(1, phase="discovery", assignment=FOUND, details=found.details()))
        assert found.text in describe(line)
        recorder.round(report(2, phase="stable", assignment=FOUND))
        summary = recorder.finish({}, evaluations(), FOUND)
    return summary, (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.pictures
def test_summary_and_page_show_the_evidence(tmp_path: Path) -> None:
    summary, page = finished(tmp_path / "run", Evidence.of(GROUPS, KEYS, False))
    assert summary.discovery == "2 groups of 2, 2 clients (p = 0.0025; score 0.61 at K = 2)"
    assert "Are there groups?" in page
    assert summary.discovery in page
    assert page.count("data:image/png") == 2
    assert (tmp_path / "run" / "discovery.png").read_bytes().startswith(b"\x89PNG")
    assert "discovery" not in one_run.headline(summary)
