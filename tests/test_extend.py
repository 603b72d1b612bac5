"""`florets extend`: four sites' run goes on with a fifth, in a folder of its own."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import florets
from florets.api.extend import extend
from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.server_app.checkpoint import Checkpoints
from florets.strategies.registry import strategy_class

OF_GROUP = {"north": 0, "east": 0, "south": 1, "west": 1, "fifth": 1}


def write(folder: Path, month: int, names: list[str], words: tuple[str, ...] = ("a", "b")) -> Path:
    """Write a table for each site; in the second group the classes have changed their names."""
    for name in names:
        rng = np.random.default_rng([month, len(name), OF_GROUP[name], *name.encode()])
        x = rng.normal(size=(80, 2))
        positive = (x[:, 0] + x[:, 1] > 0) ^ bool(OF_GROUP[name])
        table = {"u": x[:, 0], "v": x[:, 1], "w": rng.choice(words, 80), "y": np.where(positive, "yes", "no")}
        (folder / name).mkdir(parents=True)
        pd.DataFrame(table).to_csv(folder / name / "data.csv", index=False)
    return folder


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def clients(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "clients.csv", index_col="client")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parent")
    data = write(root / "january", 1, ["north", "east", "south", "west"])
    given = [
        "experiment=own_data", "strategy=clove", "k=2", "first_round=update", "num_rounds=6", "target=y",
        "min_clients=4", "strategy.stability_rounds=2", "train.learning_rate=0.05", "train.local_epochs=5",
        "eval_every=1", "task.model=mlp", "pictures=false", "quiet=true", f"data_dir={data}",
        f"results_dir={root / 'results'}",
    ]  # fmt: skip
    assert main(given) == 0
    (folder,) = (path.parent for path in (root / "results").rglob("summary.json"))
    return folder


def test_a_fifth_site_joins_its_group_and_the_parent_stays(parent: Path, tmp_path: Path) -> None:
    before, data = digests(parent), write(tmp_path / "february", 2, list(OF_GROUP), ("a", "b", "new"))
    run = extend(parent, data, num_rounds=3, to=tmp_path / "next")
    assert digests(parent) == before
    assert run.folder == tmp_path / "next"
    old, new = clients(parent), clients(run.folder)
    assert list(new.index) == sorted(OF_GROUP)
    assert new.loc[old.index, "found_cluster"].tolist() == old["found_cluster"].tolist()
    assert new.loc["fifth", "found_cluster"] == new.loc["west", "found_cluster"]
    assert new.loc["north", "found_cluster"] != new.loc["west", "found_cluster"]
    assert new["test_accuracy"].min() > 0.85
    lines = [json.loads(line) for line in (run.folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, 10))
    earlier = (parent / "rounds.jsonl").read_text().splitlines()
    assert lines[:6] == [json.loads(line) for line in earlier]
    rows = run.clients_over_rounds.query("client == 'north'")
    assert rows["round"].tolist() == list(range(1, 10))
    # The first of its rounds begins where the parent's last one ended.
    assert lines[6]["accuracy"] > 0.85
    assert (run.folder / "preprocessing.json").read_text() == (parent / "preprocessing.json").read_text()
    named = json.loads((run.folder / "parent.json").read_text())
    assert (named["run"], named["rounds"]) == (str(parent), 6)
    assert f"Extends the run in {parent} after its round 6" in (run.folder / "run.log").read_text()


def test_an_extended_run_is_extended_next_to_it(parent: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(parent, copied)
    data = write(tmp_path / "february", 2, ["north", "east", "south", "west"])
    for folder, rounds in (("run", 7), ("run-extended", 8)):
        assert main(["extend", f"run={tmp_path / folder}", f"data_dir={data}", "num_rounds=1"]) == 0
        summary = json.loads((tmp_path / f"{folder}-extended" / "summary.json").read_text())
        assert summary["rounds"] == rounds
    assert main(["extend", f"run={copied}", f"data_dir={data}", "num_rounds=1"]) == 0
    assert (tmp_path / "run-extended-2" / "summary.json").is_file()


def test_a_run_that_patience_ended_goes_on_from_its_best_models(tmp_path: Path) -> None:
    data = write(tmp_path / "january", 1, ["north", "east"])
    keys = {"target": "y", "min_clients": 2, "pictures": False, "quiet": True, "results_dir": tmp_path / "results"}
    # Two groups of opposite classes: one model is soon as good as it gets.
    run = florets.run(
        "own_data", strategy="fedavg", data_dir=data, num_rounds=30, patience=1, eval_every=1,
        task={"model": "mlp", "validation_fraction": 0.2}, train={"learning_rate": 2.0}, **keys,
    )  # fmt: skip
    done = run.summary.rounds
    assert run.summary.best_round is not None
    assert run.summary.best_round < done < 30
    target = tmp_path / "prepared"
    assert main(["extend", f"run={run.folder}", f"to={target}", "prepare=true"]) == 0
    saved = Checkpoints(target).load(strategy_class("fedavg"))
    assert saved is not None
    final = load_file(run.folder / "models.safetensors")
    assert {name: array.numpy().tolist() for name, array in saved.models.items()} == {
        name: values.tolist() for name, values in final.items()
    }
    # Its patience is not used up.
    assert florets.extend(run.folder, data, num_rounds=1).summary.rounds == done + 1


def test_for_real_nodes_the_folder_is_prepared_alone(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "next"
    assert main(["extend", f"run={parent}", f"to={target}", "prepare=true", "num_rounds=2", "min_clients=1"]) == 0
    shown = capsys.readouterr().out
    assert f"flwr run . --stream --run-config 'resume=\"{target}\"'" in shown
    # With the nodes of the earlier run.
    assert main([f"resume={target}", "quiet=true"]) == 0
    assert json.loads((target / "summary.json").read_text())["rounds"] == 8


def test_what_cannot_be_extended_is_refused_before_anything_is_written(parent: Path, tmp_path: Path) -> None:
    good = write(tmp_path / "good", 2, ["north", "east", "south", "west"])
    other = write(tmp_path / "other", 2, list(OF_GROUP))
    table = pd.read_csv(other / "fifth" / "data.csv").drop(columns="v")
    table.to_csv(other / "fifth" / "data.csv", index=False)
    with pytest.raises(ConfigError, match=r"fifth: the table lacks 'v'"):
        extend(parent, other)
    table.assign(v=1.0, y="maybe").to_csv(other / "fifth" / "data.csv", index=False)
    with pytest.raises(ConfigError, match=r"fifth: the target 'y' of 80 records is none of the classes"):
        extend(parent, other)
    with pytest.raises(ConfigError, match=r"task.model=linear: an extended run is the earlier one on other data"):
        extend(parent, good, task={"model": "linear"})
    with pytest.raises(ConfigError, match="must be an integer from 1"):
        extend(parent, good, num_rounds=0)
    assert main(["extend", f"run={parent}"]) == 2
    unfinished = tmp_path / "unfinished"
    shutil.copytree(parent, unfinished)
    (unfinished / "report.html").unlink()
    with pytest.raises(ConfigError, match=r"is not finished, and only a finished.*florets resume="):
        extend(unfinished, good)
    lost = tmp_path / "lost"
    shutil.copytree(parent, lost)
    shutil.rmtree(lost / "checkpoint")
    with pytest.raises(ConfigError, match="ended without a checkpoint"):
        extend(lost, good)
    with pytest.raises(ConfigError, match="is not empty"):
        extend(parent, good, to=lost)
    assert sorted(path.name for path in parent.parent.iterdir()) == [parent.name]


def test_a_privacy_budget_is_extended_once_and_a_spent_one_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abcdef":
        (tmp_path / "sites" / name).mkdir(parents=True)
    given = [
        "experiment=own_data", "task.data=tests.own_functions:of_site", "strategy=fedavg", "task.model=linear",
        "task.partition_options={input_shape: [3], num_outputs: 2}", "privacy.kind=central", "privacy.epsilon=8",
        "privacy.delta=0.01", "min_clients=6", "pictures=false", f"data_dir={tmp_path / 'sites'}",
    ]  # fmt: skip
    for name, rate in (("spent", 1.0), ("left", 0.5)):
        results = tmp_path / name
        assert main([*given, "num_rounds=2", f"strategy.fraction_train={rate}", f"results_dir={results}"]) == 0
        (folder,) = (path.parent for path in results.rglob("summary.json"))
        ledger = folder / "privacy.json"
        budget = json.loads(ledger.read_text())
        if name == "left":
            # As if three of the sites had not been drawn.
            ledger.write_text(json.dumps({**budget, "spent": dict.fromkeys("abc", budget["total"])}))
            new = extend(folder, tmp_path / "sites", num_rounds=1, trust=True, to=tmp_path / "next").folder
            spent = json.loads((new / "privacy.json").read_text())["spent"]
            assert spent == dict.fromkeys("abcdef", budget["total"])
        says = r"allows 0 of the sites another round" if name == "spent" else "went to .*next, and cannot be spent"
        with pytest.raises(ConfigError, match=says):
            extend(folder, tmp_path / "sites", trust=True, to=tmp_path / "second")
        assert main([f"resume={folder}", "num_rounds=9", "trust=true"]) == 2
        assert ("went to" if name == "left" else "8 is spent") in capsys.readouterr().err
        assert (folder / "report.html").is_file()
