"""Flower's flat run config, the JSON text, the task's description and the results folder."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from florets.conf.compose import compose
from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, config_to_json, run_config_overrides
from florets.conf.saved import run_folder

UNSET = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
"""The keys that the app declares, at their sentinels."""


def test_sentinels_leave_the_experiments_own_values():
    assert UNSET["num-server-rounds"] == -1
    overrides = run_config_overrides(UNSET)
    assert overrides == []
    assert compose(overrides) == compose([])


def test_a_run_config_and_a_command_line_mean_the_same():
    run_config = {"experiment": "clove/mnist_label_skew_1", "overrides": "k=5 strategy.init=same", "seed": 0}
    run_config |= {"num-server-rounds": 7, "learning-rate": 0.5, "fraction-train": 0.5, "data-dir": "/it's, here"}
    keys = ["experiment=clove/mnist_label_skew_1", "k=5", "strategy.init=same", "seed=0", "num_rounds=7"]
    keys += ["train.learning_rate=0.5", "strategy.fraction_train=0.5", 'data_dir="/it\'s, here"']
    assert compose(run_config_overrides(UNSET | run_config)) == compose(keys)


@settings(max_examples=15)
@given(st.text(min_size=1))
@example("null")
@example("True")
@example("1e5")
@example("a\\'b\\")
@example(" a, b ")
def test_any_text_reaches_the_other_side_of_hydras_grammar(text):
    problems: list[str] = []
    read = read_overrides(run_config_overrides({"data-dir": text}), problems)
    assert problems == []
    assert [entry.value for entry in read] == [text]


def test_a_configuration_survives_json_and_is_checked_anew():
    config = compose(["strategy=ifca", "task.model_options.hidden=[8,4]", "quorum=0.9", "k=3"])
    text = config_to_json(config)
    assert "\n" not in text
    assert config_from_json(text) == config
    values = json.loads(text)
    for wrong, message in {
        "{": "is not JSON",
        "[1]": "must be a JSON object",
        json.dumps(values | {"sed": 1}): "config-json: sed: there is no such key. Did you mean seed?",
        json.dumps(values | {"seed": "1"}): "config-json: seed=1: must be an integer",
        json.dumps(values | {"seed": -1}): "seed=-1: must be at least 0",
        json.dumps(values | {"task": 3}): "config-json: task=3: holds several keys",
        json.dumps(
            values | {"strategy": {"name": "ifka"}}
        ): "no such strategy; there are clove, .* Did you mean ifca",
        json.dumps(values | {"strategy": {"name": "ifca", "memory": True}}): "strategy.memory: there is no such key",
    }.items():
        with pytest.raises(ConfigError, match=message):
            config_from_json(wrong)


@pytest.mark.parametrize(
    ("overrides", "folder"),
    [
        ([], "quickstart/clove/seed-0"),
        (["seed=3", "strategy=ifca", "start_timeout=9", "results_dir=/b"], "quickstart/ifca/seed-3"),
        (["data_dir=/a/raw"], "own_data/clove/data_dir-c1d2dbeb/seed-0"),
        (["train.learning_rate=0.1", "k=5"], "quickstart/clove/k-5__train.learning_rate-0.1/seed-0"),
    ],
)
def test_a_results_folder_says_what_was_run(overrides, folder):
    assert run_folder(compose(overrides), overrides).as_posix() == folder
