"""Which K and which first round a configuration has where groups are to be found."""

import pytest

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_models, build_strategy, build_task
from florets.task.wire import bank


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    (line,) = caught.value.problems
    return line


def test_discovery_finds_k_unless_it_is_given_by_hand_and_starts_from_one_model() -> None:
    config = compose(["strategy=discovery"])
    assert config.k == "auto"
    assert compose(["strategy=discovery", "k=3"]).k == 3
    assert bank.num_models(build_models(config, build_task(config))) == 1
    # Of 5 clients k_max=10 is no bound that anything could break.
    assert compose(["strategy=discovery", "num_clients=5", "task.num_clusters=2"]).k == "auto"
    assert problem("strategy=discovery", "k=21").startswith("k=21: more models than clients")


@pytest.mark.parametrize("preset", ["clove/mnist_label_skew_1", "clove/partial_participation"])
def test_values_that_a_preset_makes_from_k_are_made_from_its_own(preset: str) -> None:
    config, plain = (compose([f"experiment={preset}", *more]) for more in (["strategy=discovery"], ["strategy=ifca"]))
    assert config.k == "auto"
    assert (config.task, config.num_rounds) == (plain.task, plain.num_rounds)


@pytest.mark.parametrize("strategy", ["clove", "cfl_gp", "ifca"])
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


def test_cfl_gps_own_rule_and_initial_groups_have_no_say_beside_folds() -> None:
    given = ["strategy=cfl_gp", "k=auto", "choose_k=folds"]
    assert problem(*given, "strategy.k_warmup=3") == (
        "strategy.k_warmup=3: has an effect only with k=auto choose_k=spectral; add that, or leave it out."
    )
    assert problem(*given, "strategy.initial_groups=one") == (
        "strategy.initial_groups=one: has an effect only with first_round=random; add that, or leave it out."
    )


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("strategy.level=0", "strategy.level=0.0: must be greater than 0 and less than 1."),
        ("strategy.fold_width=4", "strategy.fold_width=4: must be at least 8."),
        ("strategy.rediscover_every=-1", "strategy.rediscover_every=-1: must be at least 0; 0 means never."),
        ("first_round=update", "first_round=update: strategy discovery has no such choice; leave it out."),
        ("choose_k=folds", "choose_k=folds: strategy discovery has no such choice; leave it out."),
    ],
)
def test_wrong_settings_of_discovery_are_told(given: str, rule: str) -> None:
    assert problem("strategy=discovery", given) == rule
