"""Order of the layers, independence of the surroundings, wrong keys in our words."""

import json
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from florets.conf.compose import compose
from florets.conf.overrides import parse_overrides_string, read_overrides
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, config_to_json, run_config_overrides
from florets.conf.saved import run_folder
from florets.conf.schema import Chosen, Config, as_plain
from florets.strategies.clove.strategy import CLoVESettings
from florets.task.data.samples import targets


def problems(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    return caught.value.problems


def test_alone_it_is_the_quickstart():
    config = compose([])
    assert config == compose(["experiment=quickstart"])
    assert (config.k, config.num_clients, config.task.num_clusters) == (4, 20, 4)
    assert (config.task.data, config.task.partition, config.task.model) == ("digits", "rotation", "mlp")
    assert config.task.partition_options == {"split": "shared"}
    assert config.strategy == Chosen("clove", CLoVESettings())


def test_an_explicit_key_beats_the_preset_and_the_preset_beats_the_schema():
    assert Config.num_rounds == 10
    assert compose(["experiment=clove/mnist_label_skew_1"]).num_rounds == 100
    assert compose(["num_rounds=3", "experiment=clove/mnist_label_skew_1"]).num_rounds == 3


def test_an_optimiser_chosen_by_hand_beats_the_presets_figures():
    train = compose(["experiment=clove/mnist_label_skew_1", "train=sgd"]).train
    assert (train.optimizer, train.learning_rate) == ("sgd", 0.1)
    assert compose(["train=sgd", "train.learning_rate=0.5"]).train.learning_rate == 0.5


@pytest.mark.parametrize("override", ["task=linear", "task.partition=label_skew_1"])
def test_options_go_with_the_function_that_they_belong_to(override):
    assert compose([override]).task.partition_options == {}


def test_options_take_new_entries_without_a_plus_in_any_order():
    for typed in (
        ["task.data_options.delta=0.1", "task.data_options={noise: 3}"],
        ["task.data_options={noise: 3}", "task.data_options.delta=0.1"],
    ):
        assert compose(typed).task.data_options == {"noise": 3, "delta": 0.1}
    hidden = compose(["task.model_options.hidden=[64,32]"]).task.model_options
    assert hidden == {"hidden": [64, 32]}


def test_a_presets_open_k_is_the_true_number_for_strategies_that_need_a_number():
    preset = "experiment=clove/partial_participation"
    assert compose([preset]).k == "auto"
    assert compose([preset, "strategy=ifca"]).k == 5
    assert compose([preset, "strategy=ifca", "task.num_clusters=2"]).k == 2
    assert compose([preset, "strategy=ifca", "k=3"]).k == 3


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("task.table.id", "rec", ["rec"]),
        ("tracker", "mlflow", "mlflow"),
        ("task.partition_options.input_shape", 8, [8]),
    ],
)
def test_one_value_is_a_list_of_one(key, value, wanted, conf_copy):
    nested = value
    for name in reversed(key.split(".")):
        nested = f"{{{name}: {nested}}}"
    (conf_copy / "experiment" / "mine.yaml").write_text(f"defaults: own_data\n{nested[1:-1]}\n")
    for overrides in (["experiment=own_data", f"{key}={value}"], ["experiment=mine"]):
        found = as_plain(compose(overrides))
        for name in key.split("."):
            found = found[name]
        assert found == wanted


WRONG = {
    ("k=5", "k=6"): "k: given twice with two values, k=5 and k=6; keep one.",
    ("sed=1",): "sed=1: there is no such key. Did you mean seed?",
    ("rounds=1",): "rounds=1: there is no such key. Did you mean num_rounds?",
    ("learning_rate=0.1",): "learning_rate=0.1: there is no such key. Did you mean train.learning_rate?",
    ("+no_such_key=1",): "+no_such_key=1: keys are neither added, removed nor moved",
    ("strategy=cloves",): "strategy=cloves: no such strategy; there are clove, ifca, cfl_gp, two_phase, ",
    ("strategy=Per-FedAvg",): "or package.module:Class. Did you mean per_fedavg?",
    ("moment_rounds=4",): "there is no such key. Did you mean strategy.moment_rounds, a key of strategy=two_phase?",
    ("first_round=updat",): "takes only random or evaluate or update; leave it out. Did you mean update?",
    (
        "strategy.clustering=kmean",
    ): "strategy.clustering=kmean: must be one of kmeans, agglomerative. Did you mean kmeans?",
    ("strategy.name=ifca",): "strategy.name=ifca: choose a strategy with strategy=<name>.",
    ("strategy=fedavg", "strategy.memory=true"): (
        "strategy.memory=true: strategy fedavg has no such key; leave it out, or use strategy=clove."
    ),
    (
        "strategy=local",
        "strategy.init=same",
    ): "use strategy=clove, ifca, cfl_gp, oracle, one_shot or k_fed.",
    ("k=fast",): "k=fast: must be an integer or auto.",
    ("seed=1.5",): "seed=1.5: must be an integer.",
    ("quorum=high",): "quorum=high: must be a number.",
    ("eval_clients=x",): "eval_clients=x: must be one of all, participants.",
    ("strategy.shared_layers=",): "must be a list of strings.",
    ("strategy.shared_layers=[0.10]",): "strategy.shared_layers=[0.1]: must be a list of strings.",
    ("strategy=pacfl", "num_clients=50000"): "all pairs of 50000 clients must be compared",
    ("task.drift.rounds=fast",): "must be a list of integers.",
    ("seed=1,2",): "seed=1,2: several values make a sweep: add -m. For one list, write seed=[1,2].",
    ("k={1",): "k={1: cannot be read",
}


@pytest.mark.parametrize("overrides", WRONG, ids=" ".join)
def test_a_wrong_override_is_told_with_its_remedy(overrides):
    (problem,) = problems(*overrides)
    assert WRONG[overrides] in problem


def test_all_problems_come_in_one_error():
    found = problems("+x=1", "k=1", "k=2", "sed=3", "train.batch_size=many", "strategy.nope=1")
    assert [text.split(":")[0] for text in found] == [
        "+x=1",
        "k",
        "sed=3",
        "strategy.nope=1",
        "train.batch_size=many",
    ]
    text = str(ConfigError(found))
    assert text.startswith("5 problems:\n  - +x=1: ")
    assert text.count("\n  - ") == 5


def test_a_preset_is_read_again_once_it_was_edited(conf_copy):
    preset = conf_copy / "experiment" / "quickstart.yaml"
    assert compose([]).num_rounds == 10
    preset.write_text(preset.read_text().replace("num_rounds: 10", "num_rounds: 11"))
    # In case the file system's clock has not moved since.
    os.utime(preset, ns=(0, preset.stat().st_mtime_ns + 1))
    assert compose([]).num_rounds == 11


def test_overrides_in_one_text_are_split_as_a_shell_would():
    assert parse_overrides_string("k=5  seed=1 data_dir='/my data'") == ["k=5", "seed=1", "data_dir=/my data"]
    assert parse_overrides_string("") == []
    with pytest.raises(ConfigError, match="close every quote"):
        parse_overrides_string("data_dir='/my")


def test_class_names_that_are_read_as_something_else_are_refused():
    (problem,) = problems("experiment=own_data", "task.data_options.classes=[null, 1.0]")
    assert "name 1 is read as NoneType" in problem
    quoted = compose(["experiment=own_data", "task.data_options.classes=[0, 'null', \"a,1e3,b\", no]"])
    assert quoted.task.data_options["classes"] == [0, "null", "a,1e3,b", "no"]


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        (np.array([0.0, 1.0]), ["0", "1"], [0, 1]),
        (np.array(["0.0", "1.00", "1."]), ["0", "1"], [0, 1, 1]),
        (np.array(["01", "1", "1.0"]), ["01", "1"], [0, 1, 1]),
    ],
)
def test_labels_match_the_names_of_classes(values, classes, expected):
    assert targets(Path("x"), values, classes, False).tolist() == expected


@pytest.mark.parametrize("values", [np.array([0.0, 7.5]), np.array(["01", "1"]), np.array(["a", "marked"])])
def test_a_label_that_is_no_class_is_not_quoted(values):
    with pytest.raises(ValueError, match=r"the target of sample \d is none of the classes") as caught:
        targets(Path("x"), values, ["0", "1", "a"], False)
    assert not {"7.5", "01", "marked"} & set(str(caught.value).split())


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
