"""Run-level keys that describe the experiment: every strategy follows them, or says why it cannot."""

import logging
from pathlib import Path

import pytest
import yaml
from flwr.app import ConfigRecord

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.run_config import run_config_overrides
from florets.conf.saved import saved_config
from florets.conf.schema import as_plain
from florets.server_app.build import build_strategy, build_task
from florets.strategies import STRATEGIES
from florets.strategies.base.averaging import Averaging, GradientAveraging, ModelAveraging
from florets.strategies.registry import settings_type
from florets.task.wire import kinds

CHOICES = {
    "averaging": ("models", "gradients"),
    "first_round": ("random", "evaluate", "update", "farthest"),
    "choose_k": ("silhouette", "silhouette_lone", "elbow", "silhouette_repeated", "finch", "spectral", "folds"),
    "loss_data": ("train", "held_out"),
    "personal": ("none", "ditto", "fedala", "fedproto", "intercept"),
}


def averaging(*overrides: str) -> Averaging:
    config = compose(overrides)
    return build_strategy(config, build_task(config)).averaging


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    (line,) = caught.value.problems
    return line


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("key", CHOICES)
def test_null_is_the_strategys_own_default(strategy: str, key: str) -> None:
    follows = settings_type(strategy).follows.get(key, ())
    assert set(follows) <= set(CHOICES[key])
    assert getattr(compose([f"strategy={strategy}", f"{key}=null"]), key) == (follows[0] if follows else None)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in CHOICES.items() for value in values])
def test_an_explicit_choice_is_followed_or_refused_and_never_dropped(strategy: str, key: str, value: str) -> None:
    follows = settings_type(strategy).follows.get(key, ())
    if value in follows:
        assert getattr(compose([f"strategy={strategy}", f"{key}={value}"]), key) == value
        return
    rule = f"takes only {' or '.join(follows)}" if follows else "has no such choice"
    if follows and key == "choose_k":
        rule += ", with k=auto"
    other = f", or use strategy={value}" if key == "personal" and value not in ("none", "intercept", strategy) else ""
    assert problem(f"strategy={strategy}", f"{key}={value}") == (
        f"{key}={value}: strategy {strategy} {rule}; leave it out{other}."
    )


@pytest.mark.parametrize(("experiment", "batch"), [("cfl_gp/linear", 10), ("cfl_gp/rotated_mnist", 64)])
def test_the_baselines_of_cfl_gp_have_its_budget(experiment: str, batch: int) -> None:
    for strategy in STRATEGIES:
        # These are for classes.
        if strategy in ("fedproto", "fedpac", "fedrc") and experiment == "cfl_gp/linear":
            continue
        config = compose([f"experiment={experiment}", f"strategy={strategy}"])
        if "gradients" in settings_type(strategy).follows["averaging"]:
            assert (config.averaging, config.gradient_batch) == ("gradients", batch), strategy
        else:
            # What the preset says of gradients means nothing to them.
            assert (config.averaging, config.gradient_batch) == ("models", None), strategy
    followers = [name for name in STRATEGIES if "gradients" in settings_type(name).follows["averaging"]]
    assert set(followers) >= {"clove", "ifca", "fedavg", "oracle", "one_shot", "k_fed", "local", "cfl_gp"}


@pytest.mark.parametrize("strategy", ["fedavg", "oracle", "one_shot", "k_fed", "local", "clove", "ifca"])
def test_the_budget_reaches_the_averaging_of_each_baseline(strategy: str) -> None:
    found = averaging("experiment=cfl_gp/linear", f"strategy={strategy}")
    assert isinstance(found, GradientAveraging)
    assert (found.batch, found.learning_rate, found.optimizer) == (10, 0.1, "sgd")


def test_a_strategy_that_averages_no_gradients_trains_as_ever_on_such_a_preset() -> None:
    assert isinstance(averaging("experiment=cfl_gp/linear", "strategy=fedprox"), ModelAveraging)
    config = compose(["experiment=cfl_gp/linear", "strategy=fedprox"])
    assert (config.first_round, config.choose_k, config.server_learning_rate) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "strategy=fedprox gradient_batch=10",
            "gradient_batch=10: has an effect only with averaging=gradients; strategy fedprox has none; leave it "
            "out.",
        ),
        (
            "strategy=clove gradient_batch=10",
            "gradient_batch=10: has an effect only with averaging=gradients; add that, or leave it out.",
        ),
        (
            "experiment=cfl_gp/linear averaging=models server_optimizer=adam",
            "server_optimizer=adam: has an effect only with averaging=gradients; add that, or leave it out.",
        ),
    ],
)
def test_keys_of_gradients_without_gradients_are_refused_with_a_remedy_that_works(given: str, message: str) -> None:
    assert problem(*given.split()) == message


def test_averaging_by_hand_takes_a_presets_keys_of_gradients_out() -> None:
    config = compose(["experiment=cfl_gp/linear", "averaging=models"])
    assert (config.averaging, config.gradient_batch) == ("models", None)


@pytest.mark.parametrize(("batch", "expected"), [("full", 0), ("7", 7)])
def test_the_batch_of_a_gradient_reaches_the_clients(batch: str, expected: int) -> None:
    found = averaging("averaging=gradients", f"gradient_batch={batch}")
    assert isinstance(found, GradientAveraging)
    assert found.batch == expected
    # Where nobody says otherwise: all samples, of CFL-GP those of a training step.
    for strategy, default in (("clove", 0), ("cfl_gp", 100)):
        found = averaging(f"strategy={strategy}", "averaging=gradients")
        assert isinstance(found, GradientAveraging)
        message = ConfigRecord({kinds.LEARNING_RATE: 0.1, kinds.BATCH_SIZE: 100})
        assert found.in_round(message, 1).batch == default


OLD = {
    "strategy.averaging=gradients": ("averaging", "gradients"),
    "strategy.first_round=evaluate": ("first_round", "evaluate"),
    "strategy.choose_k=elbow": ("choose_k", "elbow"),
}


@pytest.mark.parametrize("old", OLD)
def test_an_old_name_works_and_the_new_one_is_told(old: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    key, value = OLD[old]
    assert compose([old]) == compose([f"{key}={value}"])
    assert [record.getMessage() for record in caplog.records] == [
        f"{old}: the key is now {key}={value}; the old name will go with the next release"
    ]


@pytest.mark.parametrize(("old", "new"), [("group_n", "examples"), ("group", "uniform"), ("all", "all_participants")])
def test_old_words_of_the_weighting_work(old: str, new: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    assert compose([f"strategy.normaliser={old}"]) == compose([f"strategy.weighting={new}"])
    assert f"strategy.normaliser={old}: the key is now strategy.weighting={new};" in caplog.text
    settings = compose(["strategy.absurd_loss=50"]).strategy.settings
    assert settings.outlier_loss == 50.0  # type: ignore[attr-defined]


def test_an_old_and_a_new_name_with_two_values_are_an_error_and_with_one_are_not() -> None:
    assert problem("averaging=gradients", "strategy.averaging=models") == (
        "averaging: given twice with two values, averaging=gradients and strategy.averaging=models; keep one."
    )
    assert problem("strategy.normaliser=all", "strategy.weighting=examples").startswith(
        "strategy.weighting: given twice with two values, strategy.normaliser=all and strategy.weighting=examples"
    )
    assert compose(["averaging=gradients", "strategy.averaging=gradients"]).averaging == "gradients"


@pytest.mark.parametrize("overrides", ["strategy.averaging=gradients", "averaging=gradients"])
def test_flowers_run_config_takes_both_names(overrides: str) -> None:
    assert compose(run_config_overrides({"overrides": overrides})).averaging == "gradients"


def test_a_folder_of_the_last_release_is_read_under_the_new_names(tmp_path: Path) -> None:
    values = as_plain(compose(["strategy=ifca", "averaging=gradients", "strategy.weighting=uniform"]))
    # There IFCA had no rule for K.
    values["choose_k"] = None
    new = saved_config(_written(tmp_path, values))
    for name in (
        "averaging",
        "gradient_batch",
        "server_learning_rate",
        "server_optimizer",
        "first_round",
        "choose_k",
    ):
        value = values.pop(name)
        if name != "choose_k":
            values["strategy"][name] = value
    values["strategy"]["normaliser"] = {"uniform": "group"}[values["strategy"].pop("weighting")]
    old = saved_config(_written(tmp_path, values))
    assert old == new
    assert (old.averaging, old.strategy.settings.weighting) == ("gradients", "uniform")  # type: ignore[attr-defined]


def _written(folder: Path, values: dict[str, object]) -> Path:
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder
