"""Every shipped file of conf/ composes with every strategy and says what it is."""

import dataclasses
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from florets.conf.compose import compose
from florets.conf.presets import OWN_DIR, choices, texts
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, config_to_json
from florets.conf.schema import Config
from florets.strategies import STRATEGIES
from florets.strategies.registry import settings_type
from florets.task.settings import TaskConfig
from florets.task.training.settings import Training

OF_CLASSES = {"fedproto", "fedpac", "fedrc"}
"""Strategies that refuse a task without classes."""


def composes(experiment, strategies):
    preset = compose([f"experiment={experiment}"])
    task = preset.task
    for strategy in strategies:
        refused = ""
        if strategy in OF_CLASSES and task.loss != "cross_entropy":
            refused = r"use task\.loss=cross_entropy"
        elif strategy == "oracle" and not task.num_clusters and task.partition != "own":
            refused = "the oracle needs the true clusters, and this task has none"
        elif strategy == "centralised" and task.partition == "own":
            refused = "these nodes .* keep theirs"
        if refused:
            with pytest.raises(ConfigError, match=refused):
                compose([f"experiment={experiment}", f"strategy={strategy}"])
            continue
        config = compose([f"experiment={experiment}", f"strategy={strategy}"])
        assert (config.experiment, config.strategy.name) == (experiment, strategy)
        assert config_from_json(config_to_json(config)) == config


def test_every_preset_composes_with_strategies_and_survives_json():
    """Each with its own strategy and another one, so that every strategy meets some presets."""
    for place, experiment in enumerate(choices("experiment")):
        own = compose([f"experiment={experiment}"]).strategy.name
        composes(experiment, [own, *list(STRATEGIES)[place % 40 :: 40]])


@pytest.mark.slow
def test_every_preset_composes_with_every_strategy():
    for experiment in choices("experiment"):
        composes(experiment, STRATEGIES)


def test_a_preset_begins_with_its_command_line_and_says_what_it_is():
    for experiment in choices("experiment"):
        lines = texts("experiment")[experiment].splitlines()
        assert lines[0] == f"# florets experiment={experiment}"
        assert len(lines[1]) > 20


def preset(folder, name, text):
    (folder / "experiment").mkdir(exist_ok=True)
    (folder / "experiment" / f"{name}.yaml").write_text(text)


def test_keys_of_the_run_may_be_one_strategys_own(tmp_path, monkeypatch):
    text = "num_rounds: 9\nfor_strategy:\n  fedavg: {num_rounds: 3, train.local_steps: 4, shared_layers: ['1']}\n"
    preset(tmp_path, "own", text)
    monkeypatch.setenv(OWN_DIR, str(tmp_path))
    own = compose(["experiment=own", "strategy=fedavg"])
    assert (own.num_rounds, own.train.local_steps) == (3, 4)
    assert own.strategy.settings.shared_layers == ["1"]
    assert compose(["experiment=own"]).num_rounds == 9
    assert compose(["experiment=own", "strategy=fedavg", "num_rounds=5"]).num_rounds == 5
    preset(tmp_path, "odd", "for_strategy:\n  fedavg: {num_round: 3}\n")
    with pytest.raises(ConfigError, match=r"num_round: there is no such key\. Did you mean num_rounds"):
        compose(["experiment=odd", "strategy=fedavg"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: [quickstrt]\n", r"preset odd: defaults: 'quickstrt' is neither .* Did you mean quickstart\?"),
        ("defaults: [odd]\n", r"preset odd: builds on itself, through odd; change its `defaults`"),
        ("k: [\n", r"experiment=odd: its file cannot be read as a mapping of keys"),
    ],
)
def test_a_faulty_preset_is_named(tmp_path, monkeypatch, text, message):
    preset(tmp_path, "odd", text)
    monkeypatch.setenv(OWN_DIR, str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        compose(["experiment=odd"])


def test_of_several_choices_the_first_is_the_default_as_the_help_says():
    for kind in [Config, TaskConfig, Training, *map(settings_type, STRATEGIES)]:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if get_origin(hints[field.name]) is Literal:
                assert field.default == get_args(hints[field.name])[0]
