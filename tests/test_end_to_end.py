"""Whole runs in process: every strategy on real digits, equal seeds equal to the bit, all results left behind."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import run
from florets.reports.summary import RunSummary

KEYS = {
    "round", "phase", "ari", "accuracy", "loss", "cluster_sizes", "ari_participants", "stable",
    "bytes_down", "bytes_up", "seconds", "replies",
}  # fmt: skip


# Two groups of four clients.
SMALL = ("num_clients=8", "k=2", "task.num_clusters=2")


def play(tmp_path: Path, *overrides: str) -> RunSummary:
    given = [f"results_dir={tmp_path}", "quiet=true", *overrides]
    return run(compose(given), given)


def lines(summary: RunSummary) -> list[dict[str, object]]:
    return [json.loads(line) for line in (Path(summary.folder) / "rounds.jsonl").read_text().splitlines()]


def test_the_quickstart_recovers_the_groups_and_freezes_them(tmp_path: Path) -> None:
    summary = play(tmp_path)
    assert summary.final_ari == 1.0
    assert summary.final_accuracy is not None
    assert summary.final_accuracy > 0.9
    assert summary.round_of_stability is not None
    assert Path(summary.folder) == tmp_path / "quickstart" / "clove" / "seed-0"


@pytest.mark.pictures
def test_a_run_leaves_all_its_results(tmp_path: Path) -> None:
    summary = play(tmp_path, "num_rounds=2")
    folder = Path(summary.folder)
    expected = {
        "config.yaml", "rounds.jsonl", "clients.csv", "loss_matrix.csv", "models.safetensors", "report.html",
        "summary.json", "run.log", "curves.png", "loss_matrix.png",
    }  # fmt: skip
    assert expected <= {path.name for path in folder.iterdir()}
    for line in lines(summary):
        assert line.keys() >= KEYS
        assert line["replies"] == {"ok": 40 if line["round"] == 1 else 60, "error": 0, "missing": 0, "invalid": 0}
    clients = list(csv.DictReader((folder / "clients.csv").read_text().splitlines()))
    assert [row["client"] for row in clients] == [f"{i:02d}" for i in range(20)]
    assert [int(row["true_cluster"]) for row in clients] == [i // 5 for i in range(20)]
    models = load_file(folder / "models.safetensors")
    assert sorted({name.split("/")[0] for name in models}) == ["0", "1", "2", "3"]


# Golden runs and resumed ones hold the other strategies to the bit as well.
def test_equal_seeds_give_equal_runs_to_the_bit_and_other_seeds_do_not(tmp_path: Path) -> None:
    def models(folder: str, seed: int) -> dict[str, np.ndarray]:
        settings = (*SMALL, f"seed={seed}", "num_rounds=3", "strategy.fraction_train=0.5")
        return load_file(Path(play(tmp_path / folder, *settings).folder) / "models.safetensors")

    first, again, other = models("a", 3), models("b", 3), models("c", 4)
    assert all(first[name].tobytes() == again[name].tobytes() for name in first)
    assert any(first[name].tobytes() != other[name].tobytes() for name in first)


LINEAR = ("experiment=clove/linear", "task.partition_options.samples_per_client=200", "loss_matrix=false")


@pytest.mark.parametrize(
    "settings",
    [
        ("strategy=k_fed", "strategy.features=inputs_and_targets"),
        (*LINEAR, "strategy=oracle", "strategy.mode=true_start", "train.local_epochs=1"),
        (*LINEAR, "strategy=one_shot", "strategy.estimate=least_squares", "train.local_epochs=1"),
    ],
    ids=lambda settings: " ".join(settings),
)
def test_the_baselines_that_know_or_see_the_groups_find_them(tmp_path: Path, settings: tuple[str, ...]) -> None:
    # Round 2 is the first in which groups found in round 1 are fixed.
    given = (
        settings
        if settings[0].startswith("experiment")
        else ("experiment=digits_label_skew", "num_clients=10", *settings)
    )
    assert play(tmp_path, *given, "num_rounds=2").final_ari == 1.0


@pytest.mark.slow
def test_the_autoencoder_finds_one_cluster_for_each_class(tmp_path: Path) -> None:
    settings = ("num_clients=10", "k=5", "task.num_clusters=5")
    summary = play(tmp_path, "experiment=digits_autoencoder", "eval_every=20", *settings)
    assert summary.final_accuracy is None
    assert summary.final_loss is not None
    assert summary.final_ari is not None
    assert summary.final_ari > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("experiment=clove/mnist_label_skew_1", "data_dir=/nowhere"), "nowhere"),
        (("task.partition=no_such_thing",), "no_such_thing"),
    ],
)
def test_what_does_not_fit_the_data_is_said_before_any_client_is_asked(
    tmp_path: Path, settings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        play(tmp_path, *settings)
    assert not list(tmp_path.rglob("rounds.jsonl"))
