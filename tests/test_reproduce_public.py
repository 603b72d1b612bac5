"""Tables of public data sets: published values of the data that are run, small scales, and tiny whole runs."""

import pytest

from florets.papers.cells import places
from florets.papers.items import read_item
from florets.papers.table import Table

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


@pytest.mark.parametrize(("given", "values"), [({}, [90.0, 91.0]), ({"task.data": "mnist"}, [80.0])])
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
