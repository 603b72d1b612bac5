"""Groups that change, and nearness to the truth: who holds what in which round, and true models."""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import run
from florets.server_app.build import build_models, build_task
from florets.server_app.final_models import Truth
from florets.task.drift import shards_by_version, trades
from florets.task.partitions.shard import Shard
from florets.task.settings import Drift
from florets.task.wire import bank
from tests.test_resume import killed, results, resumed, straight

# Groups that change
SMALL = ["task.num_clusters=4", "task.model_options.hidden=[8]", "quiet=true"]


def shards(sizes: list[int]) -> list[Shard]:
    """Clients of 20 train and 8 test rows each, no row twice; cluster c has sizes[c] of them."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    return [
        Shard(int(cluster), np.arange(20 * i, 20 * i + 20), np.arange(8 * i, 8 * i + 8))
        for i, cluster in enumerate(clusters)
    ]


def rows(shard: Shard, part: str = "train") -> list[int]:
    return sorted(int(row) for piece in shard.pieces for row in getattr(piece, part))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=5), fraction=st.floats(0.05, 1), seed=st.integers(0, 2**32)
)
@settings(max_examples=40, deadline=None)
def test_clients_that_move_trade_with_other_groups(sizes: list[int], fraction: float, seed: int) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes).tolist()
    wanted = round(fraction * len(clusters))
    if wanted < 2:
        with pytest.raises(ValueError, match="no two clients of different groups would move"):
            trades(clusters, fraction, np.random.default_rng(seed))
        return
    found = trades(clusters, fraction, np.random.default_rng(seed))
    assert found.keys() == set(found.values())
    assert 2 <= len(found) <= wanted
    assert all(clusters[taker] != clusters[giver] for taker, giver in found.items())
    if len(set(sizes)) == 1 and wanted % len(sizes) == 0:
        assert len(found) == wanted


def test_in_every_round_no_row_is_dealt_twice_and_groups_keep_their_sizes() -> None:
    first = shards([3, 3, 2])
    for version, now in enumerate(shards_by_version(Drift.of({"rounds": [3, 8], "fraction": 0.5}), first, seed=1)):
        assert sorted(row for shard in now for row in rows(shard)) == list(range(160))
        assert sorted(row for shard in now for row in rows(shard, "test")) == list(range(64))
        assert Counter(shard.cluster for shard in now) == {0: 3, 1: 3, 2: 2}
        if version < 2:
            assert sum(shard.cluster != old.cluster for shard, old in zip(now, first, strict=True)) == 4 * version


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        ("task.drift.rounds=[11,5,1]", ["must be at least 2", "must be ascending", "which has 10"]),
        (
            "task.drift.rounds=[5] task.drift.fraction=0",
            ["must be greater than 0"],
        ),
        (
            "task=own task.drift.rounds=[5] num_clients=4",
            ["needs at least two known groups; here task.num_clusters=0."],
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(keys: str, texts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        compose(keys.split())
    for text in texts:
        assert text in str(error.value)


def test_a_run_follows_the_truth_of_each_round(tmp_path: Path) -> None:
    keys = [
        *SMALL,
        "num_clients=8",
        "strategy=oracle",
        "k=4",
        "num_rounds=4",
        "task.drift.rounds=[3]",
        "task.drift.fraction=0.5",
    ]
    config = compose([*keys, f"results_dir={tmp_path}"])
    run(config, keys)
    (path,) = tmp_path.rglob("rounds.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    # The oracle trains by the truth: in each round it must be that round's.
    assert [line["ari"] for line in lines] == [1, 1, 1, 1]
    assert [line["data_changed"] for line in lines] == [0, 0, 4, 0]
    task = build_task(config)
    with (path.parent / "clients.csv").open() as file:
        table = {row["client"]: row for row in csv.DictReader(file)}
    assert [int(table[str(c)]["true_cluster"]) for c in range(8)] == [task.cluster_of(c, 4) for c in range(8)]
    with (path.parent / "clients_over_rounds.csv").open() as file:
        rows = [(int(row["client"]), int(row["round"]), int(row["true_cluster"])) for row in csv.DictReader(file)]
    assert {row: task.cluster_of(row[0], row[1]) for row in rows} == {row: row[2] for row in rows}


@pytest.mark.slow
def test_a_run_that_is_killed_around_a_change_goes_on_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [*SMALL, "k=4", "num_clients=12", "num_rounds=11", "eval_every=100"]
    given += ["strategy.stability_rounds=2", "task.drift.rounds=[9]", "task.drift.fraction=0.5"]
    whole = straight(tmp_path / "whole", given)
    for server_round in (8, 9, 10):
        folder = killed(monkeypatch, tmp_path / f"killed-{server_round}", given, server_round)
        resumed(folder)
        assert results(folder) == results(whole)


# Nearness to the truth
LINEAR = ["experiment=clove/linear", "num_clients=5", "task.data_options.samples_per_cluster=100"]


def test_true_models_have_error_0_and_others_their_distance():
    config = compose(LINEAR)
    task = build_task(config)
    true_models = task.data.true_models
    record = ArrayRecord({f"{k}/1.weight": Array(true_models[[k]]) for k in (4, 2, 0, 1, 3)})
    found = Truth(task, cluster_test=True).distances(lambda: record, evaluated=True)
    assert found.model_error == 0
    assert found.cluster_loss == pytest.approx(1e-8, rel=0.5)
    assert found.cluster_error is None
    moved = ArrayRecord({**record, "3/1.weight": Array(true_models[[3]] * np.float32(1.5))})
    found = Truth(task, cluster_test=True).distances(lambda: moved, evaluated=False)
    assert found.model_error == pytest.approx(0.5, rel=1e-6)
    assert found.cluster_loss is None


def test_each_cluster_counts_the_model_that_is_best_for_it():
    config = compose(["task.model_options={hidden: [4]}", "num_clients=8", "k=2"])
    task = build_task(config)
    models = build_models(config, task)
    found = Truth(task, cluster_test=True).distances(lambda: models, evaluated=True)
    losses, errors = np.empty((2, 4)), np.empty((2, 4))
    for k, arrays in enumerate(bank.models(models)):
        module = task.build_model()
        module.load_state_dict({name: torch.from_numpy(array.numpy()) for name, array in arrays.items()})
        for cluster in range(4):
            clients = [task.client(i) for i in range(8) if task.cluster_of(i) == cluster]
            x, y = torch.cat([c.x_test for c in clients]), torch.cat([c.y_test for c in clients])
            outputs = module.eval()(x)
            losses[k, cluster] = torch.nn.functional.cross_entropy(outputs, y).item()
            errors[k, cluster] = (outputs.argmax(dim=1) != y).double().mean().item()
    assert found.cluster_loss == pytest.approx(losses.min(axis=0).mean(), rel=1e-5)
    assert found.cluster_error == pytest.approx(errors.min(axis=0).mean(), rel=1e-6)


def test_a_run_tells_them_and_participants_alone_can_test(tmp_path):
    overrides = [*LINEAR, "num_rounds=4", "eval_every=2", "cluster_test=true", "eval_clients=participants"]
    overrides += ["strategy.fraction_train=0.6", "quiet=true", f"results_dir={tmp_path}"]
    summary = run(compose(overrides), overrides)
    (rounds,) = tmp_path.rglob("rounds.jsonl")
    lines = [json.loads(line) for line in rounds.read_text().splitlines()]
    assert [line["evaluated"] for line in lines] == [0, 3, 0, 3]
    assert [line["cluster_loss"] is not None for line in lines] == [False, True, False, True]
    assert all(line["model_error"] > 0 for line in lines)
    assert summary.final_model_error == lines[-1]["model_error"]
