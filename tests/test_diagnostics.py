"""Diagnostics of a run that went wrong without failing."""

from typing import Any

import pytest
from results_examples import FOUND, report

from florets.reports.diagnostics import chance_level, refusals
from florets.reports.summary import round_line
from florets.server_app.progress import describe
from florets.server_app.sweep.sweep_groups import JobResult
from florets.server_app.sweep.sweep_report import summary_markdown
from florets.strategies.base.report import STABLE_FROM
from tests.test_results_sweep import BASE


def line(number: int, **changes: Any) -> dict[str, Any]:
    made = round_line(report(number), {}, clients=FOUND)
    return {**made, "stable": number > 4, "accuracy": 0.098, "train_loss": 2.3, **changes}


def test_a_clustering_frozen_at_chance_level_is_told() -> None:
    lines = [line(number) for number in range(1, 11)]
    text = chance_level("cross_entropy", 10, lines)
    assert "test accuracy is 9.8%, and guessing among 10 classes 10.0%" in text
    assert "train.learning_rate" in text
    # Of two classes, 60 % is better than guessing; and so is 20 % of ten.
    assert chance_level("cross_entropy", 10, [line(n, accuracy=0.2) for n in range(1, 11)]) == ""
    assert chance_level("cross_entropy", 2, [line(n, accuracy=0.6) for n in range(1, 11)]) == ""
    assert chance_level("cross_entropy", 2, [line(n, accuracy=0.51) for n in range(1, 11)]) != ""
    # Not frozen, or not evaluated.
    assert chance_level("cross_entropy", 10, [line(n, stable=False) for n in range(1, 11)]) == ""
    assert chance_level("cross_entropy", 10, [line(n, accuracy=None) for n in range(1, 11)]) == ""
    # Frozen by the round that is the last one so far.
    assert chance_level("cross_entropy", 10, [line(1, stable=False, details={STABLE_FROM: 2})]) != ""


@pytest.mark.parametrize(("last", "told"), [(2.29, True), (1.9, False)])
def test_without_classes_it_is_the_training_loss_that_has_not_fallen(last: float, told: bool) -> None:
    lines = [line(number, accuracy=None, train_loss=2.3 if number < 10 else last) for number in range(1, 11)]
    assert bool(chance_level("squared_error", 1, lines)) is told
    # The first round trained others.
    lines[0] |= {"train_loss": 0.1, "cluster_sizes": [1]}
    assert bool(chance_level("squared_error", 1, lines)) is told
    assert chance_level("squared_error", 1, lines[:3]) == ""


def test_clients_that_were_refused_in_several_rounds_are_told_with_the_reason() -> None:
    lines = [
        line(number, rejected={"7": "too far", **({"2": "too far"} if number < 3 else {})}) for number in (1, 2, 3)
    ]
    assert refusals(lines) == ["client 7, in 3 of 3 rounds: too far"]
    many = [line(number, rejected={f"{key:02d}": "too far" for key in range(12)}) for number in (1, 2, 3)]
    assert "08, 09 and 2 more, in" in refusals(many)[0]


def test_a_mean_says_over_how_many_clients_it_is_not() -> None:
    assert "not placed" not in describe(line(1))
    two = round_line(report(1), {}, clients=[*FOUND, "08", "09"])
    assert two["unplaced"] == 2
    assert "% (2 clients not placed)" in describe(two)


def test_a_sweeps_table_has_clients_without_a_model_and_warnings() -> None:
    from dataclasses import replace

    jobs = [
        JobResult({"seed": str(seed)}, None, replace(BASE, final_unplaced=4, warnings=["too far"]), None)
        for seed in (0, 1)
    ]
    text = summary_markdown(jobs)
    assert "90.00 ± 0.00, 4.0 ± 0.0 clients not tested" in text
    assert "- seed=1: too far" in text
    assert "not tested" not in summary_markdown([JobResult({"seed": "0"}, None, BASE, None)])
