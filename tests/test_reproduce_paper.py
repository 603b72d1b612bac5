"""Published values in items of `florets reproduce`: how they are read, and the verdicts on ours."""

import re
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.papers.cells import places
from florets.papers.item import Item, find_item, item_names
from florets.papers.measures import MEASURES, values_of
from florets.papers.references import UNDECIDED, Reference
from florets.papers.table import Entry, Table, verdict_words
from florets.reports.statistics import Spread
from tests import fake_cells

ITEM = """
title: Two methods
seeds: 3
overrides: [num_rounds=2]
rows: {one: {overrides: [k=4]}}
columns: {clove: {overrides: [strategy=clove]}, ifca: {overrides: [strategy=ifca]}}
measures: [accuracy, ari, rounds_to_ari_90]
paper:
  - source: Table 1
    measure: accuracy
    values: {one: {clove: 97.6 ± 0.1, ifca: 80}}
    why: {ifca: the reason}
  - source: Table 5
    measure: rounds_to_ari_90
    values: {one: {clove: 2.0 ± 0.0, ifca: never}}
small: {cut: one round, overrides: [num_rounds=1]}
"""


def item_of(tmp_path: Path, text: str = ITEM, scale: str = "paper") -> Item:
    (tmp_path / "item.yaml").write_text(text)
    return find_item(str(tmp_path / "item.yaml"), scale)


def told(reference: Reference) -> str:
    return "; ".join(reference.reasons)


def verdict(figure: Any, measure: str, values: list[float], finished: int = 3, why: Any = "") -> str:
    """Return the verdict on a place whose finished seeds have these values."""
    text = ITEM[: ITEM.index("paper:")].replace("[accuracy, ari, rounds_to_ari_90]", f"[{measure}]")
    block = {"source": "", "measure": measure, "values": {"one": {"clove": figure}}}
    paper = yaml.safe_dump({"paper": [block], "why": {"clove": why} if why else {}}, allow_unicode=True)
    with tempfile.TemporaryDirectory() as folder:
        (reference,) = item_of(Path(folder), text + paper).references
    entry = Entry(MEASURES[measure], False, 3, finished, Spread.of(values), open="not run", reference=reference)
    found = entry.verdict
    return "" if found is None else "; ".join([found.kind, *found.reasons])


@pytest.mark.parametrize(
    ("figure", "measure", "values", "words"),
    [
        # Means 97.7, 98.5 and 98.7: nearer than 0.1, than a point, and farther.
        ("97.6 ± 0.1", "accuracy", [97.6, 97.7, 97.8], "within the paper's spread"),
        ("97.6 ± 0.1", "accuracy", [98.4, 98.5, 98.6], "within 1 point"),
        ("97.6 ± 0.1", "accuracy", [98.6, 98.7, 98.8], "off"),
        # What is printed as 99.8 may be 99.76.
        ("99.8 ± 0.0", "accuracy", [99.76, 99.76, 99.76], "within the paper's spread"),
        ("1.00 ± 0.00", "ari", [1.0, 1.0, 0.988], "within the paper's spread"),
        ("1.00 ± 0.00", "ari", [1.0, 1.0, 0.976], "within 0.01"),
        # Mean 0.98, 95 % interval 0.894 to 1.066.
        ("1.00 ± 0.00", "ari", [1.0, 1.0, 0.94], f"off; {UNDECIDED}"),
        (0.014, "loss", [0.014, 0.014, 0.014], "equal"),
        ("2.0 ± 0.0", "rounds_to_ari_90", [3.0, 3.0, 3.0], "within 1 round"),
        # One seed of three never gets there: the mean of the others alone would hide it.
        ("2.0 ± 0.0", "rounds_to_ari_90", [2.0, 2.0], "within the paper's spread"),
        ("2.0 ± 0.0", "rounds_to_ari_90", [], "off"),
        ("never", "rounds_to_ari_90", [], "never, as in the paper"),
        ("never", "rounds_to_ari_90", [4.0], "off"),
    ],
)
def test_a_verdict_says_how_ours_compares(figure: Any, measure: str, values: list[float], words: str) -> None:
    assert verdict(figure, measure, values) == words


def test_what_is_off_has_its_reason_and_what_is_not_run_has_no_verdict() -> None:
    assert verdict("80 ± 1", "accuracy", [90.0] * 3, why="the reason") == "off; the reason"
    assert verdict("80 ± 1", "accuracy", [80.5] * 3, why="the reason") == "within the paper's spread"
    assert verdict("80 ± 1", "accuracy", [], finished=0, why="the reason") == ""


def test_a_reason_of_one_side_is_given_on_no_other() -> None:
    assert verdict("80 ± 1", "accuracy", [90.0] * 3, why="below: the reason") == "off"
    assert verdict("80 ± 1", "accuracy", [70.0] * 3, why="below: the reason") == "off; the reason"
    assert verdict("2", "rounds_to_ari_90", [], why=["above: one", "both"]) == "off; both"


def test_of_a_table_without_a_run_no_published_value_is_compared_yet(tmp_path: Path) -> None:
    assert verdict_words(Table(item_of(tmp_path), (), {})) == "4 published values, none compared yet"


def test_values_are_read_with_source_spread_and_reason(tmp_path: Path) -> None:
    first, second, third, fourth = item_of(tmp_path).references
    assert (first.source, first.row, first.column, first.measure) == ("Table 1", "one", "clove", "accuracy")
    assert (first.value, first.spread, first.rounding, told(first)) == (97.6, 0.1, pytest.approx(0.05), "")
    assert (second.value, second.spread, second.rounding, told(second)) == (80.0, None, 0.5, "the reason")
    assert (third.printed, third.source) == ("2.0 ± 0.0", "Table 5")
    assert (fourth.value, fourth.printed) == (None, "never")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("97.6 ± 0.1", "about 97", "paper: one.clove: about 97: must be a number"),
        ("clove: 97.6", "clov: 97.6", "paper: clov: there is no such column. Did you mean clove?"),
    ],
)
def test_what_is_wrong_in_published_values_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ITEM
    with pytest.raises(ConfigError, match=re.escape(message)):
        item_of(tmp_path, ITEM.replace(old, new, 1))


def test_a_difference_has_its_interval_and_its_corrected_p() -> None:
    shown = Entry(MEASURES["accuracy"], True, 6, 6, Spread.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 0.018).text
    # Mean 3.5, deviation sqrt(3.5), t(5) = 2.5706: 3.5 ± 1.963.
    assert shown == "+3.5 [+1.5, +5.5], p 0.018"


def test_figures_of_single_rounds_are_read_from_the_rounds(tmp_path: Path) -> None:
    config = compose(["strategy=clove", "task=linear", "k=5", "num_clients=5"])
    summary = fake_cells.end(config, tmp_path)
    values = values_of(tmp_path, summary, config)
    # The ARI is 0.5, then 1.0.
    assert values["rounds_of_ari_1"] == [2]
    # The ARI of the participants is 0.5, then 1.0.
    assert MEASURES["ari_participants"].read(values, config) == 1.0
    assert MEASURES["rounds_to_ari_participants_90"].read(values, config) == 2
    assert MEASURES["ari_participants_at_10"].read(values, config) is None


PUBLIC = """
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
def test_only_values_of_the_data_that_are_run_stand_beside_ours(
    tmp_path: Path, given: dict[str, str], values: list[float]
) -> None:
    (tmp_path / "item.yaml").write_text(PUBLIC)
    item = find_item(str(tmp_path / "item.yaml"))
    table = Table(item, list(places(item, given, tmp_path)), {})
    assert [reference.value for reference in table.references] == values


def test_the_small_scale_of_a_row_wins_over_that_of_all(tmp_path: Path) -> None:
    (tmp_path / "item.yaml").write_text(PUBLIC)
    for scale, expected in (("paper", [(9, 100), (9, 7)]), ("small", [(2, 100), (1, 3)])):
        item = find_item(str(tmp_path / "item.yaml"), scale)
        configs = [place.config for place in places(item, {}, tmp_path)]
        assert [(config.num_rounds, config.train.batch_size) for config in configs if config] == expected


MODELS = ("emnist", "cifar10_label_shift", "cost2100", "channels")
"""Experiments of CFL-GP, App. F.6 to F.8, whose clients send models."""


@pytest.mark.slow
def test_all_methods_of_an_item_of_cfl_gp_average_alike_and_those_of_mixed_regression_have_equal_rounds() -> None:
    for name in (name for name in item_names() if name.startswith("cfl_gp/")):
        item = find_item(name)
        row = list(item.rows.values())[-1]
        keys = [{**item.overrides, **row.overrides, **column.overrides} for column in item.columns.values()]
        configs = [compose([f"{key}={value}" for key, value in one.items()]) for one in keys]
        # FedEM and centralised training have models to average alone; FedEM's one step is the gradient's.
        others = [config for config in configs if config.strategy.name not in {"fedem", "centralised"}]
        models = configs[0].experiment.removeprefix("paper/cfl_gp/") in MODELS
        assert {config.averaging for config in others} <= {"models" if models else "gradients"}
        assert {config.train.local_steps for config in configs if config.strategy.name == "fedem"} <= {1}
    for name in (name for name in item_names() if name.startswith("mixed_regression/")):
        item = find_item(name)
        rounds = set()
        # A column of more rounds shows whether the others have enough.
        for column in (column for column in item.columns.values() if not column.name.endswith("_long")):
            config = compose([f"{k}={v}" for k, v in chain(item.overrides.items(), column.overrides.items())])
            rounds.add(config.num_rounds + getattr(config.strategy.settings, "moment_rounds", 0))
        assert len(rounds) == 1


@pytest.mark.slow
def test_published_values_are_those_of_the_table_named() -> None:
    references = {
        (entry.source, entry.row, entry.column, entry.measure, entry.data): (entry.value, entry.spread)
        for name in item_names()
        for entry in find_item(name).references
    }
    assert references["Table 1", "concept_shift", "ifca", "accuracy", "mnist"] == (80.0, 0.2)
    assert references["Table 9", "label_skew_4", "clove", "ari", "mnist"] == (0.6, 0.1)
    assert references["Table 10", "label_skew_4", "clove", "ari_at_10", "mnist"] == (0.9, 0.07)
    assert references["Table 10", "label_skew_4", "clove", "ari_at_10", "fashion_mnist"] == (1.0, 0.0)
    assert references["Table 1", "feature_skew", "cfl_s", "accuracy", "cifar10"] == (61.6, 5.1)
    assert references["Table 3", "ag_news", "flexcfl", "accuracy", ""] == (60.2, 5.5)
    assert references["Table 4", "mnist", "clove", "loss", "mnist"] == (0.014, 0.0)
    assert references["Table 4", "fashion_mnist", "local", "loss", "fashion_mnist"] == (0.17, 0.0)
    assert references["Table 13", "feature_skew", "clove", "rounds_to_freeze", "cifar10"] == (6.3, 1.2)
    assert references["Table 14", "rho_0_1", "clove", "rounds_to_ari_participants_90", "mnist"] == (3.0, 0.8)
    assert references["Table 16", "clients_500", "ifca", "ari", ""] == (0.21, 0.149)
    assert references["Table 9", "clients_160", "ifca", "accuracy", "mnist"] == (84.29, 2.27)
    # Two papers have a Table 10.
    assert references["Table 10", "clients_8", "cfl_s", "accuracy", ""] == (63.7, 4.02)
