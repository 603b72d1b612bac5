"""A finished run that goes on, as a copy, with its sites' new data and with a new site."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from florets.commands.main import main

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


def test_a_fifth_site_joins_its_group_and_tables_are_prepared_as_before(tmp_path: Path) -> None:
    data = write(tmp_path / "january", 1, ["north", "east", "south", "west"])
    given = [
        "experiment=own_data", "strategy=clove", "k=2", "first_round=update", "num_rounds=6", "target=y",
        "min_clients=4", "strategy.stability_rounds=2", "train.learning_rate=0.05", "train.local_epochs=5",
        "eval_every=1", "task.model=mlp", "pictures=false", "quiet=true", f"data_dir={data}",
        f"results_dir={tmp_path / 'results'}",
    ]  # fmt: skip
    assert main(given) == 0
    (january,) = (path.parent for path in (tmp_path / "results").rglob("summary.json"))
    february = tmp_path / "february"
    shutil.copytree(january, february)
    # A word that no site had before counts as unknown.
    data = write(tmp_path / "new", 2, list(OF_GROUP), ("a", "b", "new"))
    assert main([f"resume={february}", f"data_dir={data}", "num_rounds=9"]) == 0
    old, new = (pd.read_csv(folder / "clients.csv", index_col="client") for folder in (january, february))
    assert list(new.index) == sorted(OF_GROUP)
    assert new.loc[old.index, "found_cluster"].tolist() == old["found_cluster"].tolist()
    assert new.loc["fifth", "found_cluster"] == new.loc["west", "found_cluster"]
    assert new.loc["north", "found_cluster"] != new.loc["west", "found_cluster"]
    assert new["test_accuracy"].min() > 0.85
    lines = [json.loads(line) for line in (february / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(1, 10))
    # The first of its rounds begins where the earlier run ended.
    assert lines[6]["accuracy"] > 0.85
    assert (february / "preprocessing.json").read_text() == (january / "preprocessing.json").read_text()
