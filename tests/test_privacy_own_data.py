"""Differential privacy on clients' own data: what they have in common is declared, and nothing describes them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

import florets
from florets.client_app import policy
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, config_to_json
from florets.engines import engine
from florets.server_app.own_data import saved_data
from florets.strategies.base.federation import FederationError
from florets.studies.advise.methods import Question
from florets.task import node_log
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.node_log import NodeLog
from florets.task.spec import PREPARED, TaskSpec
from florets.task.wire import kinds
from tests.test_caps import sent

DECLARED = {
    "target": "ill",
    "classes": {"no": ["0"], "yes": ["1", "2"]},
    "numeric": [{"name": "age", "mean": 60, "std": 10}, {"name": "dose", "mean": 3, "std": 2, "indicator": True}],
    "categorical": [{"name": "sex", "categories": ["f", "m"]}],
}
QUICK = ("quiet=true", "pictures=false", "num_rounds=2", "loss_matrix=false", "train.local_epochs=1")
KEYS = {"num_rounds": 1, "quiet": True, "pictures": False, "strategy": "fedavg", "loss_matrix": False}
CENTRAL, LOCAL = ({"kind": kind, "epsilon": 8} for kind in ("central", "local"))

PRIVATE = ("privacy.kind=central", "privacy.epsilon=8", "privacy.delta=0.01")


def site(folder: Path, seed: int, scale: float = 1.0, sexes: str = "fm", rows: int = 12) -> None:
    """Write records whose age is in a unit, with a sex of these."""
    rng = np.random.default_rng(seed)
    lines = ["name,age,dose,sex,ill"]
    for row in range(rows):
        dose = "" if row % 5 == 4 else f"{rng.normal(3, 2):.2f}"
        lines.append(f"p{row},{scale * rng.normal(60, 10):.1f},{dose},{sexes[row % len(sexes)]},{row % 3}")
    folder.mkdir(parents=True)
    (folder / "data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def sites(root: Path, **last: Any) -> Path:
    for number in range(3):
        site(root / f"site_{number}", number)
    site(root / "site_3", 3, **last)
    return root


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    (tmp_path / "declared.json").write_text(json.dumps(DECLARED), encoding="utf-8")
    return tmp_path / "declared.json"


def run(data: Path, results: Path, *more: str) -> Path:
    given = ["experiment=own_data", f"data_dir={data}", f"results_dir={results}", "strategy=fedavg", *QUICK, *more]
    return Path(engine.run(compose(given), given).folder)


def test_a_declared_preparation_is_that_of_the_run_that_agreed_on_it_to_the_bit(tmp_path: Path) -> None:
    data, target = sites(tmp_path / "data", sexes="fmx"), ("target=ill", "task.model=linear", "task.table.classes=")
    agreed = run(data, tmp_path / "a", *target[:2], target[2] + "{no: [0], yes: [1, 2]}")
    again = run(data, tmp_path / "b", target[1], f"task.table.preprocessing={agreed / 'preprocessing.json'}")
    for name, values in load_file(agreed / "models.safetensors").items():
        np.testing.assert_array_equal(load_file(again / "models.safetensors")[name], values)
    assert (again / "preprocessing.json").read_text() == (agreed / "preprocessing.json").read_text()
    assert (agreed / "description.json").is_file()
    assert not (again / "description.json").exists()


def test_a_file_by_hand_has_defaults_and_travels_within_the_configuration(tmp_path: Path, declared: Path) -> None:
    given = ["experiment=own_data", f"task.table.preprocessing={declared}", "target=ill"]
    config = compose(given)
    declared.unlink()
    assert config_from_json(config_to_json(config)) == config
    found = Preprocessing.of(config.task.table.preprocessing)
    assert (found.columns, found.width) == (("age", "dose", "sex"), 6)
    assert (found.categorical[0].mode, found.target_std) == ("f", 1.0)
    declared.write_text(json.dumps({"target": "y", "numeric": [{"name": "a", "mean": 0, "std": 1}]}))
    values = compose(given[:2]).task.table
    assert (values.regression, values.columns) == (True, ["a"])


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        ({"numeric": [{"name": "age"}]}, [], "NumericInput: missing 2 required positional arguments"),
        ({"classes": {"no": ["0"], "yes": ["0", "1"]}}, [], "no cell in two of them"),
        ({}, ["target=age"], "task.table.target=age: task.table.preprocessing has ill; leave it out."),
    ],
)
def test_a_wrong_declaration_is_refused_by_its_key(
    change: dict[str, Any], given: list[str], said: str, declared: Path
) -> None:
    declared.write_text(json.dumps({**DECLARED, **change}))
    with pytest.raises(ConfigError) as error:
        compose([f"task.table.preprocessing={declared}", *given])
    assert said in str(error.value)


def arrays(last: float = 1.0, labels: int = 2) -> list[Any]:
    """Return four clients' arrays; the last one's in another unit, with so many labels."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(10, 2, 2)) for _ in range(4)]
    return [*((one, np.arange(10) % 2) for one in x[:3]), (last * x[3], np.arange(10) % labels)]


@pytest.mark.parametrize(("privacy", "form"), [(CENTRAL, "arrays"), (LOCAL, "arrays"), (CENTRAL, "tables")])
def test_with_noise_nothing_leaves_but_what_it_covers_whatever_a_client_has(
    privacy: dict[str, Any], form: str, tmp_path: Path, declared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, tasks = NodeLog(tmp_path / "log"), list[Any]()
    monkeypatch.setattr(policy, "_log_of", lambda _: log)
    for number in range(2):
        if form == "arrays":
            # The neighbour's last client has another unit and one label.
            keys = {"clients": arrays(*[(1.0, 2), (1e6, 1)][number]), "classes": [0, 1, 2]}
        else:
            data = sites(tmp_path / f"data{number}", **[{}, {"scale": 1e6, "sexes": "qz", "rows": 40}][number])
            keys = {"data_dir": str(data), "experiment": "own_data", "task.table.preprocessing": str(declared)}
            keys |= {"min_clients": 4, "privacy.delta": 0.01}
        found = florets.run(**keys, **KEYS, privacy=privacy, results_dir=tmp_path / str(number))
        task = yaml.safe_load((found.folder / "config.yaml").read_text())["task"]
        prepared = found.folder / "preprocessing.json"
        tasks.append((task, prepared.read_text() if form == "tables" else prepared.exists()))
    assert tasks[0] == tasks[1]
    assert {line.kind for line in log.lines()} == {kinds.HELLO, kinds.TRAIN, kinds.EVALUATE}
    assert {line.answer for line in log.lines()} == {node_log.ANSWERED}
    assert {name for line in log.lines() for name in line.left} <= {"facts", "models", "evaluations", "labels"}
    # A run that was stopped goes on with what was declared.
    options = "task.partition_options={input_shape: [1, 2, 2], num_outputs: 3}"
    config = compose(["experiment=own_data", "min_clients=4", *PRIVATE, options])
    assert bool(saved_data(config, found.folder).table.get(PREPARED)) == (form == "tables")


def test_what_is_not_declared_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    for clients in ({"clients": arrays()}, {"clients": arrays(), "regression": False}):
        with pytest.raises(ConfigError, match=r"in Python classes= or regression=True"):
            florets.run(**clients, **KEYS, privacy=CENTRAL, results_dir=tmp_path)
    with pytest.raises(ConfigError, match="what own data have in common must be declared"):
        compose(["task.data=own", "task.partition=rotation", *PRIVATE])
    with pytest.raises(ConfigError, match=r"privacy\.delta: the number of clients is not known"):
        compose(["experiment=own_data", "task.partition_options={input_shape: [2], num_outputs: 2}", *PRIVATE[:2]])
    with pytest.raises(ConfigError, match="each of which would spend epsilon"):
        Question.of(["privacy.kind=central", "privacy.epsilon=8"])
    site(tmp_path / "data" / "a", 0)
    site(tmp_path / "data" / "b", 1)
    options = "task.partition_options={input_shape: [4], num_outputs: 2}"
    with pytest.raises(FederationError, match=r"declare task\.table\.preprocessing"):
        run(tmp_path / "data", tmp_path / "results", *PRIVATE, "privacy.min_group=2", options)


def test_a_node_that_adds_noise_keeps_to_itself_why_its_table_does_not_fit(tmp_path: Path) -> None:
    site(tmp_path / "data", 0)
    wrong = Preprocessing.of({**DECLARED, "classes": {"no": ["0"], "yes": ["1"]}})
    options = {"input_shape": [wrong.width], "num_outputs": 2}
    spec = TaskSpec("own", "own", "linear", "cross_entropy", 1, 0, 0, "", {}, options, table={
        PREPARED: wrong.to_plain()})  # fmt: skip
    node = {"data-dir": str(tmp_path / "data"), "log-folder": str(tmp_path / "log")}
    session.adopt(None)
    settings = {kinds.TASK: spec.to_json()}
    with pytest.raises(ValueError, match="4 records have a target that is not one of the classes"):
        sent(node, kinds.HELLO, settings)
    with pytest.raises(ValueError, match=r"^this node cannot answer; the reason .* is only in its log"):
        sent(node, kinds.HELLO, {**settings, kinds.PRIVACY: "local"})
    assert [line.reason.split(" records")[0] for line in NodeLog(tmp_path / "log").lines()] == ["4"] * 2
