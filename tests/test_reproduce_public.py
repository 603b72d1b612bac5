"""Tables of public data sets: published values of the data that are run, small scales, and tiny whole runs."""

from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.papers.cells import places
from florets.papers.items import read_item
from florets.papers.table import Table
from tests.public_files import write_idx

ITEM = """
title: Two data sets
seeds: 2
overrides: [num_rounds=4]
rows:
  one: {overrides: [k=4]}
  two: {overrides: [k=2, task.num_clusters=2], for_columns: {clove: [train.batch_size=7]}}
columns: {clove: {overrides: [strategy=clove, num_rounds=9]}}
measures: [accuracy]
paper:
  - {source: Table 1, data: digits, measure: accuracy, values: {one: {clove: 90}, two: {clove: 91}}}
  - {source: Table 1, data: mnist, measure: accuracy, values: {one: {clove: 80}}}
small: {cut: much, seeds: 1, overrides: [num_rounds=2], for_rows: {two: [train.batch_size=3, num_rounds=1]}}
"""


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({}, [90.0, 91.0]),
        ({"task.data": "mnist"}, [80.0]),
    ],
)
def test_only_values_of_the_data_that_are_run_stand_beside_ours(tmp_path, given, values):
    (tmp_path / "item.yaml").write_text(ITEM)
    item = read_item(tmp_path / "item.yaml", "item")
    table = Table(item, list(places(item, given, tmp_path)), {})
    assert [reference.value for reference in table.references] == values


def test_the_small_scale_of_a_row_wins_over_that_of_all(tmp_path):
    (tmp_path / "item.yaml").write_text(ITEM)
    for scale, expected in (("paper", [(9, 100), (9, 7)]), ("small", [(2, 100), (1, 3)])):
        item = read_item(tmp_path / "item.yaml", "item", scale)
        configs = [place.config for place in places(item, {}, tmp_path)]
        assert [(config.num_rounds, config.train.batch_size) for config in configs if config] == expected


def text_of(folder: Path, item: str) -> str:
    (table,) = (folder / "reproduce" / item).rglob("table.md")
    return table.read_text()


@pytest.mark.slow
def test_table_1_is_made_of_fashion_mnist_by_one_key(tmp_path):
    for prefix, n in (("train", 500), ("t10k", 250)):
        write_idx(tmp_path / "FashionMNIST" / "raw", prefix, n, np.arange(n) % 10, packed=True)
    given = ["task.data=fashion_mnist", f"data_dir={tmp_path}", f"results_dir={tmp_path / 'results'}", "num_rounds=1"]
    chosen = ["scale=small", "rows=label_skew_1,feature_skew", "columns=clove,local"]
    assert main(["reproduce", "clove/table_1", *chosen, *given]) == 0
    text = text_of(tmp_path / "results", "clove/table_1")
    assert "16 cells: 4 finished, 12 not run" in text
    # The Fashion-MNIST column of the paper, and not MNIST's.
    assert "99.1 ± 0.0" in text
    assert "99.8 ± 0.0" not in text
