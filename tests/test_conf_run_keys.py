"""Run-level keys that describe the experiment: every strategy follows them, or says why it cannot."""

import pytest
from flwr.app import ConfigRecord

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_models, build_strategy, build_task
from florets.strategies.base.models import Averaging, GradientAveraging
from florets.task.wire import bank


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


# Where groups are to be found


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
