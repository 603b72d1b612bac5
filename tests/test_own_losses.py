"""Losses and measures beyond classes and squared errors: by hand, from Python, and what they cannot do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import florets
from florets.conf.consent import import_paths
from florets.conf.problems import ConfigError
from florets.task.consent import Consent, Refused
from florets.task.training.losses import evaluate, per_sample_losses

LABELS = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
SMALL: dict[str, Any] = {"num_clients": 4, "num_rounds": 1, "quiet": True, "pictures": False, "loss_matrix": False}


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return ((1 - (-each).exp()) ** 2 * each).mean(dim=1)


def wrong_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) != (targets > 0)).float().mean()


wrong_labels.higher_is_better = False  # type: ignore[attr-defined]  # as users say it


def badly_shaped(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.square()


def negative(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs.square().mean(dim=1)


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "expected"),
    [
        ("binary_cross_entropy", [[0.0, 0.0], [0.0, np.log(3)]], LABELS.tolist(), [np.log(2), np.log(8) / 2]),
        # exp(f) - y f + log y!
        ("poisson", [[0.0], [np.log(2)]], [3.0, 2.0], [1 + np.log(6), 2 - np.log(2)]),
        ("quantile_90", [[1.0], [3.0]], [2.0, 2.0], [0.9, 0.1]),
    ],
)
def test_losses_by_hand(loss: str, outputs: Any, targets: Any, expected: Any) -> None:
    found = per_sample_losses(torch.tensor(outputs), torch.tensor(targets, dtype=torch.float32), loss)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def clients(number: int = 2) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(number, 40, 3))
    return [(own, (own[:, :2] > 0).astype(int)) for own in x]


def test_several_labels_with_a_loss_and_a_measure_of_ones_own(tmp_path: Path) -> None:
    keys = {**SMALL, "num_clients": None, "k": 1, "strategy": "fedavg", "num_rounds": 12, "eval_every": 1}
    keys = {name: value for name, value in keys.items() if value is not None}
    keys |= {"train": {"learning_rate": 1.0}, "task": {"validation_fraction": 0.2}, "patience": 2}
    run = florets.run(clients=clients(), loss=focal, measure=wrong_labels, results_dir=tmp_path, **keys)
    table = run.clients
    assert (table["test_own_error"] < 0.3).all()
    assert run.summary.final_validation is not None
    # Less is better: a run that watched for more would have kept its first, worst round.
    assert run.summary.final_validation < 0.3
    predicted = run.predict(clients()[0][0], model=0)
    assert list(predicted.frame().columns) == ["prediction_0", "prediction_1"]
    assert (np.sign(predicted.values) == np.sign(clients()[0][1] - 0.5)).mean() > 0.7


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "task.loss=cross_entropy: needs one class a sample"),
        ({"loss": "poisson", "strategy": "fedem"}, "strategy=fedem: mixes outputs"),
        ({"loss": badly_shaped}, r"returned a tensor of shape \(2, 2\) for 2 samples"),
        ({"loss": lambda outputs, targets: outputs.mean()}, "reduction='none'"),
    ],
)
def test_what_cannot_work_is_refused_by_name(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        florets.run(clients=clients(), results_dir=tmp_path, quiet=True, **{"k": 1, "strategy": "clove", **keys})


def test_a_negative_loss_is_refused_without_its_value() -> None:
    with pytest.raises(ValueError, match="negative for records of this client") as error:
        evaluate(torch.nn.Linear(1, 2), torch.ones(3, 1), torch.ones(3), "tests.test_own_losses:negative")
    assert not any(sign.isdigit() for sign in str(error.value).partition("is negative")[2].replace("at least 0", ""))


def test_own_losses_and_measures_need_the_same_consent_as_other_code() -> None:
    named = {"task": {"loss": "mine:loss"}, "measure": "mine:figure"}
    assert import_paths(named) == {"task.loss": "mine:loss", "measure": "mine:figure"}
    with pytest.raises(Refused, match=r"task\.loss=mine:loss: this node does not allow"):
        Consent(()).require("task.loss", "mine:loss")
