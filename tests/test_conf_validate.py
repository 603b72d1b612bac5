"""Ranges and impossible combinations, each with its message."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.build import build_models, build_strategy, build_task
from florets.strategies.base.models import Averaging, GradientAveraging
from florets.task.keys import Mismatch, convert, range_problems
from florets.task.training.settings import Training
from florets.task.wire import bank

WRONG = {
    "seed=99999999999999999999": "seed=99999999999999999999: must be less than 2**63, the largest number that a "
    "message can hold.",
    "device=gpu": "device=gpu: must be cpu, cuda, cuda:<number>, mps or auto.",
    "data_dir=''": "data_dir: must name a folder",
    "quorum=1.5": "quorum=1.5: must be greater than 0 and at most 1",
    "batch_clients=0": "batch_clients=0: must be at least 1; off computes each client's work alone, auto chooses",
    "k=21": "k=21: more models than clients (num_clients=20); use k of at most 20, or more clients.",
    "k=auto k_max=21": "k_max=21: more models than clients",
    "k=auto strategy=one_shot": "k=auto: strategy one_shot cannot find K; give an integer, or use strategy=clove or",
    "strategy.fraction_train=1.1": "strategy.fraction_train=1.1: must be greater than 0 and at most 1; 1.0 means",
    "strategy.fraction_train=0.04": "no client would take part in a round; use at least 0.05, or more clients.",
    "gradient_batch=5": "gradient_batch=5: has an effect only with averaging=gradients",
    "strategy=cfl_gp choose_k=silhouette": "takes only spectral or folds, with k=auto; leave it out.",
    "strategy=cfl_gp strategy.quantise_digits=3": "has an effect only with strategy.quantise=round or truncate",
    "strategy=cfl_gp k=auto": (
        "k_warmup=20, and with strategy.period=2 and num_rounds=10 none comes; raise num_rounds, or lower"
    ),
    "strategy=ifca privacy.kind=central privacy.epsilon=8 privacy.delta=0.05": "give less than 0.05, or leave it",
    "strategy=two_phase strategy.anchors=3": "at least k=4",
    "strategy=two_phase strategy.fresh=true": "needs a number",
    "strategy=two_phase strategy.local_solver=fedprox": "train.momentum=0 train.schedule=constant",
    "train.momentum=0.9": "train.momentum=0.9: has an effect only with train.optimizer=sgd",
}


@pytest.mark.parametrize("overrides", WRONG)
def test_what_cannot_run_is_refused_with_its_remedy(overrides):
    with pytest.raises(ConfigError) as caught:
        compose(overrides.split(" ") if "' '" not in overrides else [overrides])
    (problem,) = caught.value.problems
    assert WRONG[overrides] in problem


@pytest.mark.parametrize(
    "overrides",
    [
        "k=auto k_max=20",
        "strategy.fraction_train=0.05",
        "strategy.fraction_train=0.3333333333333333 num_clients=3 k=1 task.num_clusters=3",
        # Fewer participants than models are allowed: models without a client keep their parameters.
        "strategy.fraction_train=0.1 k=20",
        # One model, or one per client: K does not apply, so that a sweep over strategies may set it.
        "strategy=fedavg k=100",
        "task.num_clusters=0 task.partition=my.own:split",
        "strategy=cfl_gp averaging=gradients gradient_batch=full strategy.stop_unchanged=0",
        "strategy=cfl_gp k=auto num_rounds=30",
        "strategy=cfl_gp k=auto strategy.k_warmup=5",
    ],
)
def test_what_can_run_is_not_refused(overrides):
    compose(overrides.split(" "))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_range_holds_finite_numbers_only(value: float) -> None:
    assert len(range_problems(Config(round_timeout=value, quorum=value))) == 2
    assert range_problems(Config(quorum=math.nan)) == [
        "quorum=nan: must be greater than 0 and at most 1, and a finite number; 1.0 means all."
    ]
    assert range_problems(Training(momentum=math.nan), "train.") == [
        "train.momentum=nan: must be at least 0 and less than 1, and a finite number."
    ]
    assert range_problems(Config(seed=10**400)) == []


def test_an_array_is_neither_a_list_nor_one_value():
    with pytest.raises(Mismatch):
        convert(np.array(["first", "second"]), list[str])


def averaging(*overrides: str) -> Averaging:
    config = compose(overrides)
    return build_strategy(config, build_task(config)).averaging


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    (line,) = caught.value.problems
    return line


@pytest.mark.parametrize(
    ("strategy", "defaults"),
    [
        ("clove", ("models", "random", "silhouette", "train", "none")),
        ("cfl_gp", ("gradients", "random", "spectral", None, "none")),
        ("fedavg", ("models", None, None, None, "none")),
        ("ditto", ("models", None, None, None, None)),
    ],
)
def test_null_is_the_strategys_own_default(strategy: str, defaults: tuple[str | None, ...]) -> None:
    keys = ("averaging", "first_round", "choose_k", "loss_data", "personal")
    config = compose([f"strategy={strategy}", *(f"{key}=null" for key in keys)])
    assert tuple(getattr(config, key) for key in keys) == defaults


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("strategy=fedprox averaging=gradients", "strategy fedprox takes only models; leave it out."),
        ("strategy=fedavg first_round=evaluate", "strategy fedavg has no such choice; leave it out."),
        ("strategy=ditto personal=slopes", "strategy ditto has no such choice; leave it out."),
        ("strategy=discovery choose_k=folds", "strategy discovery has no such choice; leave it out."),
    ],
)
def test_a_choice_that_a_strategy_cannot_follow_is_refused(given: str, message: str) -> None:
    assert problem(*given.split()) == f"{given.split()[1]}: {message}"


@pytest.mark.parametrize(("batch", "expected"), [("full", 0), ("7", 7)])
def test_the_batch_of_a_gradient_reaches_the_clients(batch: str, expected: int) -> None:
    found = averaging("averaging=gradients", f"gradient_batch={batch}")
    assert isinstance(found, GradientAveraging)
    assert found.batch == expected
    # Where nobody says otherwise: all samples, of CFL-GP those of a training step.
    for strategy, default in (("clove", 0), ("cfl_gp", 100)):
        found = averaging(f"strategy={strategy}", "averaging=gradients")
        assert isinstance(found, GradientAveraging)
        message = ConfigRecord({"learning-rate": 0.1, "batch-size": 100})
        assert found.in_round(message, 1).batch == default


def test_discovery_finds_k_unless_it_is_given_by_hand_and_starts_from_one_model() -> None:
    config = compose(["strategy=discovery"])
    assert config.k == "auto"
    assert compose(["strategy=discovery", "k=3"]).k == 3
    assert bank.num_models(build_models(config, build_task(config))) == 1
    # Of 5 clients k_max=10 is no bound that anything could break.
    assert compose(["strategy=discovery", "num_clients=5", "task.num_clusters=2"]).k == "auto"
    assert problem("strategy=discovery", "k=21").startswith("k=21: more models than clients")


@pytest.mark.parametrize("strategy", ["clove", "cfl_gp"])
def test_folds_find_k_in_a_first_round_of_updates(strategy: str) -> None:
    given = [f"strategy={strategy}", "k=auto", "choose_k=folds"]
    config = compose(given)
    assert (config.first_round, config.choose_k) == ("update", "folds")
    built = build_strategy(config, build_task(config))
    assert (built.first_round, built.choose_k) == ("update", "folds")
    assert compose([*given, "first_round=update"]) == config
    assert problem(*given, "first_round=random") == (
        "first_round=random: choose_k=folds finds K in a round of updates (first_round=update); leave it out."
    )
    # With a given K the rule has no say.
    assert compose([f"strategy={strategy}", "k=4", "choose_k=folds"]).first_round == "random"
