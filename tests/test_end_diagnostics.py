"""Warnings about runs that end with doubtful results, and refusals of those that could not end well."""

from pathlib import Path

import pytest
import torch

from florets.commands.main import main
from florets.conf.compose import compose
from florets.server_app.results.diagnostics import divergence, too_few_models


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (["k=4", "task.num_clusters=7"], True),
        (["k=4", "task.num_clusters=7", "strategy=ifca"], True),
        (["k=4", "task.num_clusters=4"], False),
        (["k=7", "task.num_clusters=4"], False),
        (["k=auto", "task.num_clusters=7"], False),
        (["k=1", "task.num_clusters=7"], False),
        (["k=4", "task.num_clusters=7", "strategy=fedavg"], False),
        (["k=4", "task.num_clusters=7", "strategy=local"], False),
        (["experiment=own_data", "k=2"], False),
    ],
)
def test_fewer_models_than_true_clusters_are_told(settings: list[str], warned: bool) -> None:
    text = too_few_models(compose(settings))
    assert text.startswith("k=4 models for task.num_clusters=7 true clusters") is warned
    assert bool(text) is warned


def line(loss: float | None, diverged: int = 0, evaluated: int = 4) -> dict[str, object]:
    return {"loss": loss, "diverged": diverged, "evaluated": evaluated}


@pytest.mark.parametrize(
    ("loss", "lines", "words"),
    [
        ("cross_entropy", [line(2.3), line(1.1)], ""),
        ("cross_entropy", [line(2.3), line(1e14)], "loss at the end is 1e+14, far worse than guessing"),
        ("cross_entropy", [line(1e9), line(1e9), line(None, evaluated=0)], "loss at the end is 1e+09"),
        # Targets may be large numbers: only growth says anything.
        ("squared_error", [line(1e10), line(1e9)], ""),
        ("squared_error", [line(2.0), line(3000.0)], "3e+03, is over 1000 times the first one"),
        ("squared_error", [line(1e-12), line(None, 4)], "no client's test loss is finite"),
        ("squared_error", [line(None, 4), line(5.0)], ""),
        ("squared_error", [line(1.0), line(None, 1)], ""),
        ("squared_error", [line(None, evaluated=0)], ""),
        ("squared_error", [], ""),
    ],
)
def test_models_that_diverged_are_told_at_the_end(loss: str, lines: list[dict[str, object]], words: str) -> None:
    text = divergence(loss, lines)
    assert words in text
    assert bool(words) is bool(text)


def test_warnings_are_shown_and_logged_and_the_run_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["k=2", "num_rounds=2", "train.learning_rate=1e9", "quiet=true", f"results_dir={tmp_path}"]
    assert main(given) == 0
    shown = capsys.readouterr().err
    logged = next(tmp_path.rglob("run.log")).read_text()
    for text in ("k=2 models for task.num_clusters=4", "the models have diverged: the test loss at the end"):
        assert f"warning: {text}" in shown
        assert f"WARNING {text}" in logged


def test_what_this_machine_or_its_data_cannot_do_is_refused_before_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device, what in (("cuda", "CUDA device"), ("mps", "Apple GPU")):
        assert main([f"device={device}", f"results_dir={tmp_path}"]) == 2
        assert f"device={device}, but this machine's PyTorch sees no {what}" in capsys.readouterr().err
    too_many = ["experiment=mixed_regression/a", "strategy.min_anchor_examples=100000", f"results_dir={tmp_path}"]
    assert main(too_many) == 2
    shown = capsys.readouterr().err
    assert "have the 100000 examples that an anchor needs" in shown
    assert "phase 1:" not in shown
    # What an earlier run has left there would still be there.
    assert not any(tmp_path.rglob("config.yaml"))
