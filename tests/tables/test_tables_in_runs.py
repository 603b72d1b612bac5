"""Tables in whole runs: columns by name, a wrong site alone left out, raw cells, resume, and other forms of data."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from florets.commands import main
from florets.server_app.checkpoint import Checkpoints
from florets.task.data.tables.preprocessing import Preprocessing

NAMES = ("age", "dose", "weight")
SETTINGS = (
    *("strategy=fedavg", "num_rounds=3", "quiet=true", "pictures=false", "task.model=linear", "k=1", "target=price"),
    *("train.optimizer=sgd", "train.learning_rate=0.1", "train.local_epochs=20"),
)


def table(path: Path, order: Sequence[str], seed: int = 0, n: int = 30, separator: str = ",") -> None:
    """Write records with price = 3 age - dose + weight / 2; `order` is that of the columns alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(seed).standard_normal((n, 3)).round(4)
    rows = [dict(zip(NAMES, row, strict=True)) | {"price": round(float(row @ [3, -1, 0.5]), 4)} for row in x]
    lines = [separator.join(order), *(separator.join(str(row.get(name, "?")) for name in order) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def folders(root: Path, **orders: Sequence[str]) -> Path:
    for seed, (name, order) in enumerate(orders.items()):
        table(root / name / "train.csv", order, seed)
        # Within one site the test table may have an order of its own as well.
        table(root / name / "test.csv", sorted(order), seed + 100)
    return root


def train(data: Path, results: Path, *more: str) -> Path:
    assert main.main([*SETTINGS, f"data_dir={data}", f"results_dir={results}", *more]) == 0
    (marker,) = results.rglob("rounds.jsonl")
    return marker.parent


def models(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "models.safetensors")


def same(left: Path, right: Path) -> bool:
    mine, yours = models(left), models(right)
    return all(np.array_equal(values, yours[name]) for name, values in mine.items())


SAME = (*NAMES, "price")
TURNED = ("weight", "price", "dose", "age")


@pytest.mark.slow
def test_a_site_whose_columns_are_in_another_order_trains_on_the_same_features(tmp_path: Path) -> None:
    whole = train(folders(tmp_path / "straight", north=SAME, south=SAME), tmp_path / "a")
    other = train(folders(tmp_path / "turned", north=SAME, south=TURNED), tmp_path / "b")
    assert same(whole, other)
    prepared = Preprocessing.of(json.loads((whole / "preprocessing.json").read_text()))
    assert prepared.columns == NAMES
    # In the tables' own units.
    weights = models(whole)["0/1.weight"][0] * prepared.target_std / [column.std for column in prepared.numeric]
    np.testing.assert_allclose(weights, [3, -1, 0.5], atol=0.1)
    sites = json.loads((whole / "description.json").read_text())
    assert {key: site["records"] for key, site in sites.items()} == {"north": 60, "south": 60}


def test_a_misspelt_column_costs_its_site_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The first site of all.
    wrong = "a"
    good = folders(tmp_path / "good", n=SAME, m=SAME, p=TURNED)
    bad = folders(tmp_path / "bad", n=SAME, m=SAME, p=TURNED)
    table(bad / wrong / "data.csv", ("age", "dosis", "weight", "price"))
    first = train(good, tmp_path / "a")
    capsys.readouterr()
    # As many columns as models need: order and number are the majority's.
    assert same(first, train(bad, tmp_path / "b"))
    assert "1 node could not take part" in capsys.readouterr().out
    log = next((tmp_path / "b").rglob("run.log")).read_text()
    assert "lacks 'dose' (it has 'dosis')" in log
    # Its own file mends it.
    (bad / wrong / "node.toml").write_text('rename = {dosis = "dose"}\n')
    assert main.main([*SETTINGS, f"data_dir={bad}", f"results_dir={tmp_path / 'c'}"]) == 0
    assert "could not take part" not in capsys.readouterr().out


def test_one_table_for_each_node_and_one_of_all_with_an_owner_are_the_same_run(tmp_path: Path) -> None:
    joined = [",".join(("site", *SAME))]
    for seed, name in enumerate(("north", "south", "west")):
        table(tmp_path / "each" / f"{name}.csv", SAME, seed, n=40)
        lines = (tmp_path / "each" / f"{name}.csv").read_text().splitlines()[1:]
        joined += [f"{name},{line}" for line in lines]
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "data.csv").write_text("\n".join(joined))
    each = train(tmp_path / "each", tmp_path / "a")
    owned = train(tmp_path / "all", tmp_path / "b", "owner=site")
    assert same(each, owned)
    assert [line.split(",")[0] for line in (owned / "clients.csv").read_text().splitlines()[1:]] == [
        *("north", "south", "west")
    ]


def test_a_resumed_run_prepares_tables_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folders(tmp_path / "data", a=SAME, b=TURNED)
    whole = train(data, tmp_path / "whole")
    save = Checkpoints.save

    def killed(self: Checkpoints, checkpoint):  # type: ignore[no-untyped-def]
        save(self, checkpoint)
        if checkpoint.server_round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        assert main.main([*SETTINGS, f"data_dir={data}", f"results_dir={tmp_path / 'r'}"]) == 130
    (folder,) = (path.parent for path in (tmp_path / "r").rglob("config.yaml"))
    # A site comes back with its columns in another order.
    for name, seed in (("train", 0), ("test", 100)):
        table(data / "a" / f"{name}.csv", ("dose", "price", "age", "weight"), seed)
    assert main.main([f"resume={folder}"]) == 0
    assert same(whole, folder)
