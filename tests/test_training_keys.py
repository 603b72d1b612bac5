"""Keys of local training that every method follows: clipping, augmentation, precision, optimizer, schedule."""

import copy
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord
from torch import Tensor, nn
from torch.nn import functional as F

from florets.client_app.client import session
from florets.client_app.training import _Problem
from florets.conf.compose import compose
from florets.conf.consent import import_paths
from florets.conf.problems import ConfigError
from florets.conf.schema import as_plain
from florets.server_app.build import build_checked, build_task, message_settings
from florets.server_app.own_code import code_imported
from florets.strategies import STRATEGIES
from florets.strategies.shared.messages import QUERY_FOLDS
from florets.task.models.mlp import mlp
from florets.task.randomness import Purpose
from florets.task.training import loop as training
from florets.task.training.augmentation import Augmentation
from florets.task.training.loop import gradient, train
from florets.task.training.losses import PLAIN
from florets.task.training.settings import KEYS, Precision, Training
from florets.task.wire import kinds
from tests import own_functions
from tests.method_runs import play
from tests.test_caps import node, sent  # noqa: F401 - a fixture

FLIP = "tests.own_functions:mirrored"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def samples() -> tuple[Tensor, Tensor]:
    draws = rng(3)
    return torch.from_numpy(draws.standard_normal((10, 6)).astype(np.float32)), torch.from_numpy(
        draws.integers(3, size=10)
    )


def line() -> nn.Module:
    """Return a linear model of two inputs, without bias, at 0."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False))
    nn.init.zeros_(module[1].weight)  # type: ignore[arg-type]
    return module


@pytest.mark.parametrize(("most", "factor"), [(1.0, 0.2), (10.0, 1.0)])
def test_a_step_is_clipped_by_hand(most: float, factor: float) -> None:
    x, y = torch.tensor([[3.0, 4.0]]), torch.tensor([-1.0])  # the gradient at 0 is (3, 4), of norm 5
    module = line()
    settings = Training(0.5, 1, 1, "sgd", clip_norm=most)
    assert not settings.is_gradient_descent
    train(module, x, y, "half_squared_error", settings, rng())
    torch.testing.assert_close(module[1].weight, torch.tensor([[-1.5, -2.0]]) * factor)  # type: ignore[index]
    found, _ = gradient(line(), x, y, "half_squared_error", None, rng(), settings)
    np.testing.assert_allclose(found["1.weight"], [[3 * factor, 4 * factor]], rtol=1e-5)
    # Half of the loss has half of the gradient, which is clipped at the same norm.
    whole = _Problem({}, settings, PLAIN, Purpose.LOCAL_TRAINING, 0.5).on_whole_loss().training
    module = line()
    train(module, x, y, "half_squared_error", whole, rng())
    half = min(1.0, most / 2.5) * torch.tensor([[-0.75, -1.0]])
    torch.testing.assert_close(module[1].weight, half)  # type: ignore[index]


def test_bf16_trains_float32_parameters_to_nearly_the_same(samples: tuple[Tensor, Tensor]) -> None:
    x, y = samples
    modules = [mlp((6,), 3, [5])]
    modules.append(copy.deepcopy(modules[0]))
    for module, precision in zip(modules, get_args(Precision), strict=True):
        settings = Training(0.1, 5, 4, "sgd", precision=precision)
        train(module, x, y, "cross_entropy", settings, rng())
    for exact, rough in zip(*(module.parameters() for module in modules), strict=True):
        assert rough.dtype == torch.float32
        assert not torch.equal(exact, rough)
        torch.testing.assert_close(exact, rough, rtol=0.05, atol=0.02)


def test_the_built_in_augmentations_mirror_and_move_images() -> None:
    x = torch.from_numpy(rng().random((40, 2, 5, 6), dtype=np.float32))
    before = x.clone()
    flipped = Augmentation("flip", rng(1))(x)
    mirrored = [torch.equal(new, old.flip(2)) for new, old in zip(flipped, x, strict=True)]
    assert 10 < sum(mirrored) < 30
    assert all(
        torch.equal(new, old) for new, old, is_mirrored in zip(flipped, x, mirrored, strict=True) if not is_mirrored
    )
    padded = F.pad(x, (4,) * 4)
    places = []
    for new, old in zip(Augmentation("crop", rng(2))(x), padded, strict=True):
        found = [(d, r) for d in range(9) for r in range(9) if torch.equal(new, old[:, d : d + 5, r : r + 6])]
        places += found[:1]
        assert found
    assert len(set(places)) > 20
    assert torch.equal(x, before)
    first, again, other = (Augmentation("flip_crop", rng(seed))(x) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the norms that gradients are clipped to; batches and passes are recorded in `own_functions`."""
    norms: list[float] = []
    clip = training.clip_grad_norm_

    def clipped(parameters: Any, most: float) -> Tensor:
        norms.append(most)
        return clip(parameters, most)

    monkeypatch.setattr(training, "clip_grad_norm_", clipped)
    own_functions.BATCHES.clear()
    own_functions.AUTOCAST.clear()
    return norms


FOLLOWING = ("train.clip_norm=0.5", f"train.augment={FLIP}", "train.precision=bf16")
EXTRA = {
    "cfl_gp": ("averaging=gradients",),
    "two_phase": ("strategy.moment_rounds=1", "strategy.anchors=2", "strategy.subspace_clients=2", "train=sgd"),
    "fedgwc": ("strategy.fraction_train=0.5",),
}
QUICK = {"clove", "cfl_gp", "per_fedavg", "discovery"}


@pytest.mark.parametrize(
    "strategy", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES]
)
def test_every_strategys_training_follows_the_keys(strategy: str, recorded: list[float]) -> None:
    keys = ("task.model=tests.own_functions:watched", f"strategy={strategy}", *EXTRA.get(strategy, ()), *FOLLOWING)
    play(*keys)
    assert set(recorded) == {0.5}
    assert own_functions.BATCHES
    assert own_functions.AUTOCAST
    assert all(own_functions.AUTOCAST)


def test_training_batches_alone_are_changed(recorded: list[float]) -> None:
    """Losses, tests and validation data are not: of all samples that are seen those of training are changed once."""
    play("strategy=ifca", f"train.augment={FLIP}", "train.local_epochs=2", "num_rounds=3", "eval_every=1")
    clients = sum(
        len(build_task(compose(["experiment=digits_label_skew", *SMALL])).client(i).y_train) for i in range(6)
    )
    assert sum(own_functions.BATCHES) == 3 * 2 * clients


SMALL = ("num_clients=6", "task.num_clusters=2", "k=2")


def test_every_key_reaches_the_clients_and_what_is_not_set_does_not_travel() -> None:
    config = compose([])
    usual = {"learning-rate", "local-epochs", "batch-size", "optimizer", "momentum", "weight-decay"}
    assert message_settings(config, build_task(config)).keys() & KEYS.values() == usual
    own = ("train.optimizer=sgd", "train.optimizer_options={dampening: 0.1}", "train.class_weights=root")
    schedule = ("train.schedule=step", "train.schedule_rounds=3", "train.schedule_factor=0.5", "train.local_steps=5")
    config = compose([*own, *schedule, *FOLLOWING])
    settings = message_settings(config, build_task(config))
    by_newton = compose(["train.solver=newton", "train.ridge=2"])
    newton = message_settings(by_newton, build_task(by_newton))
    assert newton.keys() >= {"solver", "ridge"}
    assert settings.keys() | newton.keys() >= set(KEYS.values())
    assert Training.received(settings) == config.train


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            ["train.optimizer_options={beta: 1}"],
            r"^train.optimizer_options.beta: Adam has no such option. Did you mean 'betas'\? Its options: ",
        ),
        (
            ["train.augment=flop"],
            r"^train.augment=flop: is unknown. Did you mean 'flip'\? Known: flip, crop, flip_crop",
        ),
        (["train.augment=shutil:rmtree"], r"no parameter 'x' .* its signature must be f\(x, rng\)"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_work(keys: list[str], message: str) -> None:
    def checked() -> None:
        config = compose(keys)
        build_checked(config, build_task(config))

    with pytest.raises(ConfigError, match=message):
        checked()


def test_an_augmentation_by_import_path_needs_trust_in_files_and_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "augment_of_a_test.py").write_text("def turned(x, rng):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = "augment_of_a_test:turned"
    config = compose([f"train.augment={path}"])
    assert import_paths(as_plain(config)) == {"train.augment": path}
    assert set(code_imported(config)) == {"augment_of_a_test.py"}
    assert import_paths({"train": {"augment": "flip"}}) == {}
    assert Training().augment is None


@pytest.mark.parametrize("kind", [kinds.TRAIN, QUERY_FOLDS])
def test_a_node_runs_no_augmentation_that_its_owner_has_not_allowed(kind: str, node: dict[str, Any]) -> None:  # noqa: F811
    asked = {"augment": FLIP, kinds.NUM_FOLDS: 2, kinds.FOLD_SIZE: 2, kinds.FOLD_STEPS: 1}
    more = {kinds.FOLD_UPLOAD: "full", kinds.FOLD_WIDTH: 26, kinds.FOLD_SEED: 1}
    with pytest.raises(
        ValueError, match=r"^train.augment=tests.own_functions:mirrored: this node does not allow that"
    ):
        sent(node, kind, {**asked, **more})
    assert sent({**node, "allow": "tests"}, kind, {**asked, **more})
    session.adopt(None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "lbfgs"}, "has optimizer='lbfgs': must be one of adam"),
        ({"optimizer-options": "[" * 100_000}, "has optimizer_options=.*: must be a mapping"),
        ({"optimizer-options": '{"foreach": true}'}, "Adam has no such option"),
    ],
)
def test_a_node_refuses_wrong_settings(settings: dict[str, Any], message: str, node: dict[str, Any]) -> None:  # noqa: F811
    with pytest.raises(ValueError, match=message):
        sent(node, kinds.TRAIN, settings)


@pytest.mark.parametrize(
    ("name", "rounds", "factor", "expected"),
    [
        ("step", 2, 0.1, [1, 1, 0.1, 0.1, 0.01]),
        ("exponential", None, 0.5, [1, 0.5, 0.25, 0.125, 0.0625]),
        ("cosine", 4, 0.2, [1, 0.6 + 0.4 * np.cos(np.pi / 4), 0.6, 0.6 - 0.4 * np.cos(np.pi / 4), 0.2]),
        ("cosine_restarts", 2, 0.2, [1, 0.6, 1, 0.6, 1]),
        ("inverse", 2, None, [1, 1, 1, 1 / 2, 1 / 3]),
        ("inverse_sqrt", None, None, [1, 2**-0.5, 3**-0.5, 0.5, 5**-0.5]),
    ],
)
def test_factors_of_the_first_five_rounds(
    name: Any, rounds: int | None, factor: float | None, expected: list[float]
) -> None:
    training = Training(schedule=name, schedule_rounds=rounds, schedule_factor=factor)
    assert [training.rate_factor(server_round) for server_round in range(1, 6)] == pytest.approx(expected, abs=1e-12)
    assert training.rate_factor(0) == 1
    assert Training.received(ConfigRecord(training.record())) == training


def settings_of(*overrides: str, server_round: int = 1) -> ConfigRecord:
    config = compose(list(overrides))
    record = message_settings(config, build_task(config))
    record[kinds.SERVER_ROUND] = server_round
    return record


def trained_with(*overrides: str, server_round: int = 1) -> Training:
    return Training.received(settings_of(*overrides)).in_round(server_round)


def test_clients_train_at_the_rate_of_the_round() -> None:
    overrides = [
        "train.learning_rate=0.2",
        "train.schedule=step",
        "train.schedule_rounds=3",
        "train.schedule_factor=0.5",
    ]
    rates = [trained_with(*overrides, server_round=r).learning_rate for r in (1, 3, 4, 7)]
    assert rates == [0.2, 0.2, 0.1, 0.05]
    assert trained_with("train.schedule=cosine", "num_rounds=4", server_round=3).learning_rate == 0.005
