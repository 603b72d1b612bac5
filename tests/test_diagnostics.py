"""Diagnostics of a run that went wrong without failing."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_examples import FOUND, report

import florets
from florets.commands.main import main
from florets.conf.compose import compose
from florets.reports.diagnostics import chance_level, divergence, too_few_models, worse_than_constant
from florets.reports.summary import round_line
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import STABLE_FROM
from florets.task.tested import Evaluation


def line(number: int, **changes: Any) -> dict[str, Any]:
    made = round_line(report(number), {}, clients=FOUND)
    return {**made, "stable": number > 4, "accuracy": 0.098, "train_loss": 2.3, **changes}


def test_a_clustering_frozen_at_chance_level_is_told() -> None:
    lines = [line(number) for number in range(1, 11)]
    text = chance_level(10, lines)
    assert "test accuracy is 9.8%, and guessing among 10 classes 10.0%" in text
    assert "train.learning_rate" in text
    # Of two classes, 60 % is better than guessing; and so is 20 % of ten.
    assert chance_level(10, [line(n, accuracy=0.2) for n in range(1, 11)]) == ""
    assert chance_level(2, [line(n, accuracy=0.6) for n in range(1, 11)]) == ""
    assert chance_level(2, [line(n, accuracy=0.51) for n in range(1, 11)]) != ""
    # Not frozen, or not evaluated.
    assert chance_level(10, [line(n, stable=False) for n in range(1, 11)]) == ""
    assert chance_level(10, [line(n, accuracy=None) for n in range(1, 11)]) == ""
    # Frozen by the round that is the last one so far.
    assert chance_level(10, [line(1, stable=False, details={STABLE_FROM: 2})]) != ""


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (["k=4", "task.num_clusters=7"], True),
        (["k=7", "task.num_clusters=4"], False),
        (["k=auto", "task.num_clusters=7"], False),
    ],
)
def test_fewer_models_than_true_clusters_are_told(settings: list[str], warned: bool) -> None:
    text = too_few_models(compose(settings))
    assert text.startswith("k=4 models for task.num_clusters=7 true clusters") is warned
    assert bool(text) is warned


def last_line(loss: float | None, diverged: int = 0, evaluated: int = 4) -> dict[str, object]:
    return {"loss": loss, "diverged": diverged, "evaluated": evaluated}


@pytest.mark.parametrize(
    ("loss", "lines", "words"),
    [
        ("cross_entropy", [last_line(2.3), last_line(1e14)], "loss at the end is 1e+14, far worse than guessing"),
        ("squared_error", [last_line(1e10), last_line(1e9)], ""),
        ("squared_error", [last_line(2.0), last_line(3000.0)], "3e+03, is over 1000 times the first one"),
        ("squared_error", [last_line(1e-12), last_line(None, 4)], "no client's test loss is finite"),
    ],
)
def test_models_that_diverged_are_told_at_the_end(loss: str, lines: list[dict[str, object]], words: str) -> None:
    text = divergence(loss, lines)
    assert words in text
    assert bool(words) is bool(text)


def values(rmse: float, spread: float = 2.0, records: int = 20) -> Evaluation:
    """A client's test whose targets have this standard deviation."""
    return Evaluation(records, rmse**2, None, scores={"rmse": rmse, "r2": 1 - (rmse / spread) ** 2})


def test_a_regression_far_worse_than_each_clients_mean_is_told_and_one_without_skill_is_not() -> None:
    def text(*tests: Evaluation) -> str:
        return worse_than_constant({str(key): test for key, test in enumerate(tests)})

    assert text(*[values(1.9)] * 4) == text(*[values(2.1)] * 4) == text() == ""
    # Two levels of +2 and -2 deviations, and one model for both.
    assert text(*[values(math.sqrt(5) * 2.0)] * 4) == ""
    # Of two records R2 is mostly noise: their own mean is nearer to them than any other number.
    assert text(*[values(2.0, 0.8, records=2)] * 4) == ""
    assert "is 9.75 times that of each client's mean, and R2 is below 0 at 4 of 4" in text(*[values(20.0)] * 4)
    # One client in another unit.
    assert text(*[values(1.0)] * 3, values(40.0)) == ""
    assert "have diverged at 1 of 4 clients (3): the RMSE" in text(*[values(1.0)] * 3, values(4000.0))
    assert text(Evaluation(20, 0.1, 0.9), Evaluation(20, 0.1, None, scores={"rmse": 0.0, "r2": 1.0})) == ""


def test_training_that_diverges_ends_with_the_learning_rate_as_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["experiment=mixed_regression/a", "strategy=fedavg", "num_rounds=9", "train.learning_rate=90"]
    assert main([*given, f"results_dir={tmp_path}", "quiet=true"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert "the learning rate (90) is too high: start again with train.learning_rate=30" in shown


@pytest.mark.parametrize(("valid", "diverged"), [(9, False), (3, True)])
def test_one_client_of_many_that_sends_nan_is_no_divergence(valid: int, diverged: bool) -> None:
    ok = tuple((str(client), 0) for client in range(valid))
    nan = {f"nan-{client}": "NaN" for client in range(1 if valid > 3 else 2)}
    assert Replies(ok, {}, (), nan, not_finite=frozenset(nan)).has_diverged is diverged


def test_a_client_whose_training_diverges_halves_its_rate_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sites = {}
    for site, scale in enumerate((1, 1, 30)):
        x = rng.normal(size=(60, 1, 2, 2)).astype(np.float32)
        sites[f"s{site}"] = (scale * x, 2 * x[:, 0, 0, 0] + rng.normal(size=60))
    keys = {"task.model": "linear", "train.learning_rate": 0.1, "num_rounds": 2, "pictures": False}
    run = florets.run(clients=sites, regression=True, strategy="fedavg", results_dir=tmp_path, **keys)
    with (run.folder / "clients_over_rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    # Steps of 2 x 0.1 x 30^2 times the error; below 2 / 900 they converge.
    assert [(row["client"], int(row["halvings"]) > 5) for row in rows[:3]] == [
        ("s0", False),
        ("s1", False),
        ("s2", True),
    ]
    assert float(rows[-1]["train_loss"]) < float(rows[2]["train_loss"])
    assert "training diverged at s2, and went on with half" in (run.folder / "run.log").read_text()


def test_warnings_are_shown_and_logged_and_the_run_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["k=2", "num_rounds=2", "quiet=true", f"results_dir={tmp_path}"]
    assert main(given) == 0
    shown = capsys.readouterr().err
    (log,) = tmp_path.rglob("run.log")
    logged = log.read_text()
    for text in ("k=2 models for task.num_clusters=4",):
        assert f"warning: {text}" in shown
        assert f"WARNING {text}" in logged
