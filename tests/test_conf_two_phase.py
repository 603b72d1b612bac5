"""The two-phase strategy's keys: what is refused, and what reaches the strategy."""

import pytest

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_strategy, build_task
from florets.strategies.two_phase.strategy import TwoPhase, TwoPhaseSettings

WRONG = {
    "strategy.inner_steps=3": "must be even and at least 2, because it multiplies by Y^T and by Y in turn; use 4",
    "strategy.inner_steps=0": "use 2",
    "strategy.moment_rounds=-1": "at least 0",
    "strategy.min_anchor_examples=1": "at least 2",
    "strategy.noise=-0.1": "at least 0",
    "strategy.beta=0": "greater than 0",
    "strategy.delta=0": "must be greater than 0; null: not known",
    "strategy.grouping=threshold": "add strategy.delta=<distance>",
    "strategy.anchors=3": "at least k=4",
    "strategy.anchors=21": "at most num_clients=20",
    "strategy.subspace_clients=21": "from 1 to num_clients=20",
    "strategy.fresh=true": "needs a number",
    "strategy.fresh=true strategy.subspace_clients=4": "need at least 24 clients, but num_clients=20",
    "strategy.labels=soft": "add train.optimizer=sgd",
    "strategy.local_solver=fedprox": "add train.optimizer=sgd",
    "strategy.temperature=0.3": "has an effect only with strategy.labels=soft; add that, or leave it out",
    "experiment=mixed_regression/a strategy.local_solver=fedprox train.momentum=0.5": (
        "train.momentum=0.5: strategy.local_solver=fedprox solves linear regressions exactly, without steps"
    ),
    "k=auto": "strategy two_phase cannot find K",
}


@pytest.mark.parametrize("overrides", WRONG)
def test_a_setting_that_cannot_work_is_told_with_its_remedy(overrides: str):
    with pytest.raises(ConfigError) as error:
        compose(["strategy=two_phase", *overrides.split()])
    assert len(error.value.problems) == 1
    assert WRONG[overrides] in str(error.value)


def test_the_settings_reach_the_strategy():
    given = {
        "moment_rounds": 10,
        "anchors": 4,
        "min_anchor_examples": 20,
        "subspace": "direct",
        "inner_steps": 6,
        "pairing": "single",
        "subspace_clients": 1,
        "fresh": True,
        "alpha": 0.5,
        "beta": 2.0,
        "epsilon": 0.1,
        "delta": 3.0,
        "grouping": "threshold",
        "noise": 0.2,
        "labels": "soft",
        "temperature": 0.3,
        "local_solver": "fedprox",
        "weighting": "examples",
    }
    keys = [f"strategy.{name}={str(value).lower()}" for name, value in given.items()]
    config = compose(["strategy=two_phase", "train=sgd", "train.learning_rate=0.5", *keys])
    strategy = build_strategy(config, build_task(config))
    assert isinstance(strategy, TwoPhase)
    assert strategy.settings == strategy.descent.settings == TwoPhaseSettings(**given)
    assert [getattr(strategy.settings, name) for name in given] == list(given.values())
    assert strategy.first_rounds == 10


def test_the_defaults_are_the_papers_in_both_places():
    config = compose(["strategy=two_phase"])
    strategy = build_strategy(config, build_task(config))
    assert isinstance(strategy, TwoPhase)
    assert strategy.settings == TwoPhase().settings == TwoPhaseSettings()
    papers = {"inner_steps": 4, "pairing": "all", "epsilon": 0.05, "labels": "hard", "weighting": "all_participants"}
    assert {name: getattr(strategy.settings, name) for name in papers} == papers
