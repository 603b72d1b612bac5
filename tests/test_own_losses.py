"""Losses and measures beyond classes and squared errors: by hand, from Python, and what they cannot do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor
from torch.nn import functional as F

import florets
from florets.conf.consent import import_paths
from florets.conf.problems import ConfigError
from florets.task.consent import Consent, Refused
from florets.task.training.loop import gradient
from florets.task.training.losses import evaluate, per_sample_losses

LABELS = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
SMALL: dict[str, Any] = {"num_clients": 4, "num_rounds": 1, "quiet": True, "pictures": False, "loss_matrix": False}


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return ((1 - (-each).exp()) ** 2 * each).mean(dim=1)


def mean_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets)


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
        # Hazards 1, 2, 1, 1; two events tie at time 1, the last record is censored. Efron's denominators are 5 and
        # 5 - 3/2 at time 1, and 2 at time 2.
        ("cox", [0.0, np.log(2), 0.0, 0.0], [[1, 1], [1, 1], [2, 1], [3, 0]], [np.log(5 * 3.5 * 2 / 2) / 4] * 4),
        ("cox", [0.3, 0.1], [[1, 0], [2, 0]], [0.0, 0.0]),
    ],
)
def test_losses_by_hand(loss: str, outputs: Any, targets: Any, expected: Any) -> None:
    found = per_sample_losses(torch.tensor(outputs), torch.tensor(targets, dtype=torch.float32), loss)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_one_number_for_all_samples_is_taken_of_all_at_once() -> None:
    x, risks = torch.arange(1200.0)[:, None], torch.nn.Linear(1, 1, bias=False)
    y = torch.stack([1200 - x[:, 0], torch.ones(1200)], dim=1)
    torch.nn.init.zeros_(risks.weight)
    # Without a difference between records: the mean of log n, log (n - 1), ..., whatever the size of a pass.
    assert evaluate(risks, x, y, "cox", chunk=100)[0] == pytest.approx(np.log(np.arange(1, 1201)).mean(), rel=1e-5)
    # By hand at 0: each event's mean input of those still at risk, less its own.
    means = x[:, 0].cumsum(0) / (x[:, 0] + 1)
    slopes, _ = gradient(risks, x, y, "cox", None, np.random.default_rng(0), chunk=100)
    np.testing.assert_allclose(slopes["weight"], [[float((means - x[:, 0]).mean())]], rtol=1e-4)


def test_a_loss_that_is_one_number_trains_as_full_batches_do(tmp_path: Path) -> None:
    def run(**keys: Any) -> florets.Run:
        keys = {"train": {"batch_size": 7}, **keys}
        return florets.run("quickstart", batch_clients="off", results_dir=tmp_path, **SMALL, **keys)

    own, full = run(loss=mean_entropy), run(train={"batch_size": 10_000})
    found, expected = (load_file(one.folder / "models.safetensors") for one in (own, full))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    # Of classes there are accuracies, whatever the loss.
    assert own.accuracy == full.accuracy


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
        ({"loss": "cox", "strategy": "fedem"}, "strategy=fedem: mixes outputs"),
        ({"loss": badly_shaped}, r"returned a tensor of shape \(2, 2\) for 2 samples"),
        ({"loss": lambda outputs, targets: outputs.mean(), "strategy": "per_fedavg"}, "strategy=per_fedavg"),
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


def survival(number: int, records: int = 60) -> Any:
    """Return sites' tables: times by one model of hazards, whatever the site's own level, and most events seen."""
    import pandas as pd

    rng, frames = np.random.default_rng(1), {}
    for site in range(number):
        x, level = rng.normal(size=(records, 2)), 4.0**site
        times, ends = (
            rng.exponential(1 / (level * rate)) for rate in (np.exp(x @ [1.0, -0.7]), np.full(records, 0.3))
        )
        # Whole months: events tie.
        months = np.ceil(20 * level * np.minimum(times, ends)) / level
        frames[f"centre-{site}"] = pd.DataFrame(
            {"age": x[:, 0], "dose": x[:, 1], "time": months, "seen": times <= ends}
        )
    return frames


EVENT = {"table": {"event": "seen", "standardise": "none"}}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # lifelines' own, of pandas 4
def test_stratified_cox_has_the_coefficients_of_lifelines(tmp_path: Path) -> None:
    lifelines = pytest.importorskip("lifelines", reason="extra survival: lifelines is not installed")
    import pandas as pd

    frames = survival(3)
    # Tested on records that it trains on as well: what is compared is the fit to all of them.
    clients = {name: {"train": frame, "test": frame.iloc[:20]} for name, frame in frames.items()}
    run = florets.run(
        clients=clients, target="time", task=EVENT, strategy="fedavg", averaging="gradients", num_rounds=120,
        eval_every=120, results_dir=tmp_path, quiet=True, pictures=False, train={"learning_rate": 1.0},
    )  # fmt: skip
    # Each client's partial likelihood is within itself: federated, that is the one with a stratum for each client.
    everyone = pd.concat([frame.assign(site=name) for name, frame in frames.items()])
    expected = lifelines.CoxPHFitter().fit(everyone, "time", "seen", strata=["site"]).params_
    weights = [values for values in load_file(run.folder / "models.safetensors").values() if values.size == 2]
    np.testing.assert_allclose(weights[0].ravel(), expected[["age", "dose"]], rtol=0.01)
    assert (run.clients["test_concordance"] > 0.6).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_advice_on_survival_times_compares_concordance_with_chance(tmp_path: Path) -> None:
    pytest.importorskip("lifelines", reason="extra survival: lifelines is not installed")
    frames = survival(4, 100)
    for name in ("centre-1", "centre-3"):
        # What kills there saves here.
        frames[name][["age", "dose"]] *= -1
    table = {"table": {"event": "seen"}}
    advice = florets.advise(
        clients=frames, target="time", task=table, results_dir=tmp_path, quiet=True, num_rounds=10
    )
    assert advice.chosen in ("discovery", "local")
    assert "(constant answer: 0.500)" in advice.text
    assert "own baseline hazard" in advice.text
    assert "statistics=true" not in advice.text
