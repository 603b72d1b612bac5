"""Nearness to the truth: true models, each true cluster's test data, and where a run tells of them."""

import json

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import run
from florets.server_app.build import build_models, build_task
from florets.server_app.final_models import Truth
from florets.task.wire import bank

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


def test_tests_on_true_clusters_need_some():
    with pytest.raises(ConfigError, match="cluster_test=true: tests on each true cluster"):
        compose(["cluster_test=true", "task.num_clusters=0", "task.partition=tests.own_functions:halves"])
