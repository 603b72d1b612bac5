"""Noise that hides single records: as large as its guarantee says, on all that leaves a client."""

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from florets.client_app import training
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines import engine
from florets.strategies.base.federation import BudgetSpent
from florets.strategies.base.report import Client
from florets.strategies.coverage import Releases
from florets.strategies.layers.budget import BUDGET_FILE, read_budget
from florets.strategies.layers.example_noise import ExampleLedger
from florets.strategies.settings import Privacy
from florets.task.training import dp_sgd, loop
from florets.task.training.losses import loss_vector
from florets.task.training.modules import torch_random
from florets.task.training.objective import Objective, Proximal
from florets.task.training.settings import Training
from florets.task.wire import kinds, noise
from florets.task.wire import sampled_noise as sampled
from tests.test_caps import model
from tests.test_caps import sent as answer
from tests.test_privacy import SMALL

KEYS, ENTROPY = ["privacy.kind=example", "privacy.epsilon=8"], "cross_entropy"
needs_opacus = pytest.mark.skipif(find_spec("opacus") is None, reason='needs pip install "florets[opacus]"')


def delta_of(releases: sampled.Releases, epsilon: float) -> float:
    """Return the larger delta of both directions, by convolution of the losses on a grid."""
    size, step, deltas = 2**17, 8e-4, []
    for sign in (1, -1):
        spectrum = np.ones(size // 2 + 1, np.complex128)
        for z, rate, count in releases:
            edges = np.linspace(-12 * z, 12 * z + 1, 50_001)
            x, mass = (edges[1:] + edges[:-1]) / 2, np.diff(norm.cdf(edges, scale=z))
            loss = sign * np.log1p(rate * np.expm1((2 * x - 1) / (2 * z * z)))
            if sign == 1:
                mass = (1 - rate) * mass + rate * np.diff(norm.cdf(edges, 1, z))
            # Split between two places, so that means stay as they are.
            place, part = np.floor(loss / step).astype(np.int64), loss / step % 1.0
            pmf = sum(np.bincount((place + i) % size, mass * p, size) for i, p in ((0, 1 - part), (1, part)))
            spectrum *= np.fft.rfft(pmf) ** count
        total = np.fft.fftshift(np.fft.irfft(spectrum, size))
        above = -np.expm1(np.minimum(epsilon - (np.arange(size) - size // 2) * step, 0.0))
        deltas.append(float((above * total).sum()))
    return max(deltas)


@needs_opacus
@pytest.mark.parametrize("releases", [((1.0, 0.1, 100),), ((2.0, 0.5, 20), (5.0, 1.0, 4))])
def test_the_accountant_agrees_with_a_convolution_within_a_hundredth(releases: sampled.Releases) -> None:
    found = sampled.epsilon_of(releases, 1e-5, 0.01)
    assert delta_of(releases, found) <= 1e-5 <= delta_of(releases, 0.99 * found)


@pytest.mark.slow
@needs_opacus
def test_the_noise_that_a_client_chooses_spends_its_budget_and_no_more() -> None:
    declared = sampled.Declared(2.0, 1e-5, rounds=5, losses=5, loss_noise=12.0)
    chosen = sampled.multiplier(declared, 0.4, 3)
    for rounds, epsilon in ((5, 2.0), (2, declared.spent(0.4, 3, 2, 2))):
        # A part of the run costs no more than is said of it.
        assert delta_of(declared.releases(chosen, 0.4, 3, rounds, rounds), epsilon) <= 1e-5
    assert delta_of(declared.releases(chosen, 0.4, 3, 5, 5), 0.985 * 2.0) >= 1e-5
    with pytest.raises(ValueError, match="too small for this many rounds"):
        sampled.multiplier(sampled.Declared(2.0, 1e-5, 5, 5, loss_noise=1.0), 0.4, 3)
    with pytest.raises(ValueError, match="no guarantee"):
        sampled.Declared(2.0, 1e-5, 1, 1, loss_noise=0.0)


def small() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    with torch_random(np.random.default_rng(3)):
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), torch.randn(9, 6), torch.arange(9) % 3


def test_without_noise_and_clips_steps_are_those_of_plain_gradients() -> None:
    plan, objective = (
        Training(optimizer="sgd", local_epochs=3, batch_size=9, momentum=0.5),
        Objective((Proximal(0.5),)),
    )
    (own, x, y), (plain, *_) = small(), small()
    dp_sgd.train(own, x, y, ENTROPY, plan, 1e9, 0.0, np.random.default_rng(0), objective)
    loop.train(plain, x, y, ENTROPY, plan, np.random.default_rng(0), objective)
    for mine, value in zip(own.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, value, rtol=1e-5, atol=1e-6)


def test_a_record_moves_the_sum_by_at_most_the_clip_and_one_that_is_not_finite_by_nothing() -> None:
    module, x, y = small()
    values = {name: value.detach() for name, value in module.named_parameters()}
    # More than are computed at a time.
    x, y = x.repeat(10, 1), y.repeat(10)

    def total(places: torch.Tensor) -> torch.Tensor:
        sums = dp_sgd.clipped_sum(dp_sgd.record_gradients(module, ENTROPY), values, x, y, places, 0.3)
        return torch.cat([part.ravel() for part in sums.values()])

    everyone, others = torch.arange(90), torch.cat([torch.arange(4), torch.arange(5, 90)])
    for scale in (1.0, 1e6):
        x[4] *= scale
        # The clip leaves room for rounding, by which the other records move.
        assert float((total(everyone) - total(others)).norm()) <= 0.3
    # On each processor: products of other numbers of records may be rounded otherwise.
    for value in (math.inf, math.nan):
        x[4] = value
        assert torch.equal(total(everyone), total(others))
    x[[4, 70]] = math.nan
    assert torch.equal(total(everyone), total(others[others != 70]))
    assert not total(torch.tensor([4, 70])).any()


def test_noise_and_draws_are_as_large_as_the_accountant_has_them() -> None:
    module, x, y = nn.Linear(200, 200), torch.zeros(10, 200), torch.arange(10)
    before = module.weight.detach().clone()
    sgd = Training(optimizer="sgd", learning_rate=1.0, batch_size=4, local_steps=1)
    dp_sgd.train(module, x, y, ENTROPY, sgd, 0.5, 3.0, np.random.default_rng(0))
    # Over the mean size of a batch, 4.
    assert len(dp_sgd.drawn(100_000, 0.3)) == pytest.approx(30_000, abs=800)
    assert float((module.weight.detach() - before).std()) == pytest.approx(3.0 * 0.5 / 4, rel=0.03)


def test_a_record_moves_losses_by_at_most_their_norm_over_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "gaussian", lambda shape, deviation: np.full(shape, deviation))
    module, x, y = small()
    states = [{name: by * value for name, value in module.state_dict().items()} for by in (0.0, 1.0, -50.0)]
    first = noise.noised_losses(loss_vector(module, states, x, y, ENTROPY, 4, 5.0), 0.7, 9)
    assert first[0] == pytest.approx(math.log(3) + 0.7 * noise.loss_norm(3) / 9 + noise.raised_by(3, 0.7))
    for scale in (1e4, math.nan):
        x[3] *= scale
        moved = first - noise.noised_losses(loss_vector(module, states, x, y, ENTROPY, 4, 5.0), 0.7, 9)
        # Replacement is at most twice what an empty record changes.
        assert 0 < np.linalg.norm(moved) <= 2 * noise.loss_norm(3) / 9


def test_the_server_asks_no_client_for_more_than_it_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled.Declared, "spent", lambda self, rate, steps, rounds, losses: rounds + losses / 10)
    own, one = ExampleLedger(Privacy("example", 4.0), Releases(before=1), 2), Client("a", 0, 0, 10)
    own.begin([one], [one])
    own.charge_grouping(["a"])
    with pytest.raises(BudgetSpent):
        own.charge_grouping(["a"])
    for _ in range(2):
        assert own.can_pay(one)
        own.charge_training(["a"], {})
    assert own.budget.reached == 2.1
    assert not own.can_pay(one)


@pytest.mark.slow
@needs_opacus
def test_a_server_that_is_not_ours_gets_nothing_with_too_little_noise(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.eye(20, 3), y=np.arange(20) % 2)
    session.adopt(None)
    honest = ExampleLedger(Privacy("example", 4.0), Releases(before=2), 2).settings
    losses, models = {"records": {kinds.ARRAYS: model(copies=2)}}, {"records": {kinds.ARRAYS: model()}}
    node = {"data-dir": str(tmp_path)}
    for kind, given in ((kinds.LOSSES, losses), (kinds.TRAIN, models)):
        assert answer(node, kind, honest, **given)
    for kind, given, name, value in (
        (kinds.LOSSES, losses, kinds.DECLARED + "loss_noise", 0.1),
        (kinds.LOSSES, losses, kinds.DECLARED + "losses", 0),
        (kinds.TRAIN, models, kinds.PRIVACY_CLIP, 1e-30),
    ):
        with pytest.raises(ValueError, match="this node cannot answer"):
            answer(node, kind, {**honest, name: value}, **given)


def test_what_noise_does_not_cover_is_refused_by_name() -> None:
    learnt = "privacy.kind=example does not cover what clients learn on folds of their data"
    keys = ("averaging=gradients", "loss_data=held_out")
    for given, said in {
        **{key: f"{key}: not covered by privacy.kind=example" for key in keys},
        "strategy=discovery": learnt,
    }.items():
        with pytest.raises(ConfigError, match=said):
            compose([given, *KEYS])


class Mixing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(dim=0)


@needs_opacus
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(6), Mixing()])
def test_models_that_mix_records_are_refused(layer: nn.Module) -> None:
    said = "depends on the other records" if isinstance(layer, Mixing) else f"{type(layer).__name__} 0 is not trained"
    with pytest.raises(ValueError, match=rf"privacy\.kind=example: .*{said}"):
        dp_sgd.check(nn.Sequential(layer, nn.Linear(6, 3)), (6,), torch.zeros(2, dtype=torch.int64), ENTROPY)


@needs_opacus
@pytest.mark.parametrize("strategy", ["clove", pytest.param("fedprox", marks=pytest.mark.slow)])
def test_a_run_spends_its_budget_and_sends_what_has_noise(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    pack = training.pack
    monkeypatch.setattr(training, "pack", lambda kind, **values: sent.append(values) or pack(kind, **values))
    given = [*SMALL, f"strategy={strategy}", *KEYS, "train.batch_size=500", f"results_dir={tmp_path}"]
    folder = Path(engine.run(compose(given), given).folder)
    assert all(values.get("train_loss", 0.0) == 0.0 and values["num_examples"] > 1 for values in sent)
    # Losses are raised by many of their deviations.
    losses = [np.min(values["losses"]) for values in sent if values.get("losses") is not None]
    assert bool(losses) == (strategy == "clove")
    assert min(losses, default=9) > 5
    assert len(sent) > len(losses)
    lines = [json.loads(line)["details"]["privacy"] for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert 0 < lines[0]["epsilon"] < lines[1]["epsilon"] < lines[2]["epsilon"] == 8.0
    assert read_budget(folder / BUDGET_FILE).reached == 8.0
