"""Patience: a run ends once it no longer improves on validation data, with its best models; it goes on to the bit."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import run
from florets.reports.pooled import read_test_statistics
from florets.reports.summary import RunSummary, round_line
from florets.server_app.checkpoint import Checkpointing
from florets.server_app.patience import Patience, validation_figure
from florets.task.tested import Evaluation
from tests.results_examples import report
from tests.test_resume import results, resumed

# A high learning rate, so that the loss on few validation samples soon rises again.
SMALL = [
    *("experiment=digits_label_skew", "num_clients=4", "k=2", "task.num_clusters=2", "loss_matrix=false"),
    *("task.model_options={hidden: [16]}", "quiet=true", "pictures=false", "train.learning_rate=0.03"),
    *("task.validation_fraction=0.3", "num_rounds=40", "patience=2", "train.local_epochs=5"),
]


def settings(*more: str) -> list[str]:
    names = {text.partition("=")[0] for text in more}
    return [*(text for text in SMALL if text.partition("=")[0] not in names), *more]


def config(*more: str) -> Any:
    return compose(settings(*more))


def line(number: int, loss: float | None) -> dict[str, Any]:
    tests = {} if loss is None else {"a": Evaluation(5, loss, 0.5, Evaluation(4, loss, 0.5))}
    found = round_line(report(number, evaluations=tests), {})
    return {**found, "validation": validation_figure(tests, "auto")}


class Host:
    """As much of a strategy as is remembered."""

    def __init__(self) -> None:
        self.state: list[int] = []


def test_the_run_ends_after_so_many_evaluations_without_a_better_one() -> None:
    patience, host = Patience(config()), Host()
    # Rounds without an evaluation do not count; an equal figure is not better, neither is one that diverged.
    figures = [0.9, 0.8, 0.8, None, 0.7, float("inf"), None, 0.75]
    over = []
    for number, loss in enumerate(figures, 1):
        host.state = [number]
        patience.after(line(number, loss), None, host)  # type: ignore[arg-type]  # nobody looks at them
        over.append(patience.is_over)
    assert over == [False] * 7 + [True]
    assert patience.best is not None
    assert (patience.best.server_round, patience.best.state) == (5, [5])
    assert "models of round 5" in patience.words(8)
    assert "not improved for 2 evaluations" in patience.words(8)
    # From the lines of an interrupted run it knows the same.
    again = Patience(config(), [line(number, loss) for number, loss in enumerate(figures, 1)], patience.best)
    assert again.is_over
    assert Patience(config("patience=null"), [line(1, 0.5), line(2, 0.6), line(3, 0.6)]).is_over is False


def test_a_figure_is_over_all_validation_records() -> None:
    tests = {
        "a": Evaluation(9, 9.0, 0.1, Evaluation(1, 1.0, 1.0)),
        "b": Evaluation(1, 9.0, 0.1, Evaluation(3, 0.2, 0.0)),
        "c": Evaluation(1, 9.0, 0.1),
    }
    assert validation_figure(tests, "auto") == pytest.approx(0.4)
    assert validation_figure(tests, "accuracy") == pytest.approx(0.25)
    assert validation_figure({"c": tests["c"]}, "auto") is None


def play(folder: Path, *more: str) -> tuple[RunSummary, dict[str, Any]]:
    given = settings(*more, f"results_dir={folder}")
    summary = run(compose(given), given)
    return summary, results(Path(summary.folder))


# One model, groups that are found, and personal models within them.
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(("strategy=clove", "personal=slopes"), marks=pytest.mark.slow),
        ("strategy=fedavg", "measure=auc", "statistics=true", "eval_every=2"),
    ],
)
def test_a_run_ends_early_with_its_best_models_and_goes_on_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    copies: dict[int, Path] = {}
    after = Checkpointing.after

    def copied(self: Checkpointing, done: int, models: Any) -> None:
        after(self, done, models)
        copies[done] = tmp_path / f"after-{done}"
        shutil.copytree(self._checkpoints.folder.parent, copies[done])

    monkeypatch.setattr(Checkpointing, "after", copied)
    summary, whole = play(tmp_path / "whole", *how)
    monkeypatch.undo()
    lines, best = whole["lines"], summary.best_round
    figures = {found["round"]: found["validation"] for found in lines if found["evaluated"]}
    assert best is not None
    assert figures[best] == (max if "measure=auc" in how else min)(figures.values())
    assert summary.rounds < 40
    assert list(figures)[-3:] == sorted({best, *list(figures)[-2:]})
    # A run of as many rounds as were best ends with the same models and tests.
    short, exact = play(tmp_path / "short", *how, f"num_rounds={best}", "patience=null")
    assert short.best_round is None
    for name in ("clients.csv", "models.safetensors"):
        assert exact[name] == whole[name]
    assert short.final_accuracy == summary.final_accuracy
    assert short.final_ari == summary.final_ari
    if "statistics=true" in how:
        assert exact["tests.json"] == whole["tests.json"]
        assert len(read_test_statistics(Path(summary.folder))) == 4
    if "personal=slopes" in how:
        own = load_file(Path(summary.folder) / "own_models.safetensors")
        for name, values in load_file(Path(short.folder) / "own_models.safetensors").items():
            np.testing.assert_array_equal(own[name], values)
    for done in (best, len(lines) - 1):
        assert results(resumed(copies[done])) == whole


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["task.validation_fraction=0"], r"patience=2: has an effect only with task.validation_fraction"),
        (["measure=auc"], r"measure=auc: on validation data it is over all records together.*statistics=true"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(more: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(*more)
