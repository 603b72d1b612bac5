"""Heavy tails: seen by the pooled kurtosis, clipped at about the pooled quantiles, or ranked; no record is sent."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from florets.server_app.data_agreement import lines
from florets.task.data.tables.agreement import Agreed, agree
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.describe import describe_table
from florets.task.data.tables.description import ColumnSummary, Description
from florets.task.data.tables.preprocessing import NumericInput, Preprocessing
from florets.task.data.tables.read import Table

Values = np.ndarray
RNG = np.random.default_rng(0)


def described(values: Values, subjects: Values | None = None, **declared: int) -> ColumnSummary:
    frame = pd.DataFrame({"v": values, "y": (np.arange(len(values)) % 2).astype(str).astype(object)})
    site = describe_table(Table(frame), Declaration(target="y", **declared), np.arange(len(values)), subjects)
    # As it arrives.
    return Description.of(json.loads(site.to_json())).columns[0]


def agreed(sites: list[Values]) -> Agreed:
    declared = Declaration(target="y")
    found = {}
    for key, values in enumerate(sites):
        frame = pd.DataFrame({"v": values, "y": (np.arange(len(values)) % 2).astype(str).astype(object)})
        found[str(key)] = describe_table(Table(frame), declared, np.arange(len(values)))
    return agree(declared, found)


def column(sites: list[Values]) -> NumericInput:
    prepared = agreed(sites).preprocessing
    assert prepared is not None
    return prepared.numeric[0]


def parts(values: Values, sites: int = 10) -> list[Values]:
    return np.array_split(values, sites)


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(50, 10, 2000),
        (RNG.random(2000) < 0.01).astype(float),
        RNG.binomial(20, 0.005, 2000).astype(float),
        # Mostly one value: what is rare is no tail.
        np.where(RNG.random(2000) < 0.97, 0.0, np.exp(RNG.normal(0, 2, 2000))),
        # Sites that differ.
        np.repeat(RNG.normal(0, 5, 10), 200) + RNG.normal(0, 1, 2000),
    ],
    ids=["normal", "rare", "counts", "mostly zero", "levels"],
)
def test_honest_columns_are_not_clipped(values: Values) -> None:
    found = agreed(parts(values))
    assert found.preprocessing is not None
    assert found.preprocessing.numeric[0].low is None


def test_heavy_tails_are_clipped_at_about_their_pooled_quantiles() -> None:
    values = np.exp(RNG.normal(0, 1.2, 20_000))
    large = column(parts(values, 4))
    assert large.low is not None
    assert large.high is not None
    low, high = np.quantile(values, [0.001, 0.999])
    assert large.high == pytest.approx(high, rel=0.1)
    assert large.low == pytest.approx(low, abs=0.3)
    clipped = np.clip(values, low, high)
    assert (large.mean, large.std) == (
        pytest.approx(clipped.mean(), rel=0.01),
        pytest.approx(clipped.std(), rel=0.05),
    )
    # Of sites of a hundred records, which name no quantile further out than the 95th percentile, still in the tail.
    small = column(parts(values[:4000], 40))
    assert small.high is not None
    assert np.quantile(values, 0.99) < small.high < 4 * high
    found = agreed(parts(values, 4))
    assert "heavy tails, clipped at about their pooled 0.1 and 99.9 % quantiles: v" in lines({}, found)


def test_few_values_and_outer_records_are_not_sent() -> None:
    ordered = np.arange(1, 101) ** 3.0
    sent = described(RNG.permutation(ordered), min_count=5)
    step = 10.0 ** math.floor(math.log10(ordered.std()))
    step /= 2 if ordered.std() < 5 * step else 1
    # The fifth value from each end, rounded as the percentiles are; the largest, 1,000,000, in no figure.
    assert sent.tail == 5
    assert sent.knots[-1] == round(96**3 / step) * step
    assert sent.inner_mean == pytest.approx(np.clip(ordered, 5**3, 96**3).mean())
    assert sent.kurtosis == float(f"{stats.kurtosis(ordered, fisher=False):.2g}")
    assert (described(ordered[:49]).knots, described(ordered[:49]).tail) == ((), 0)
    assert math.isnan(described(ordered[:49]).kurtosis)
    # A tail holds five subjects, however many records each has.
    subjects = np.arange(100) // 2
    assert described(ordered + 0.5, subjects).tail == 9
    assert described(ordered + 0.5, min_count=8).tail == 8
    assert described(ordered + 0.5, min_count=1).tail == 5


def test_bounds_are_read_back_and_prepare_each_record_alone() -> None:
    numeric = (NumericInput("a", 2.0, 4.0, True, low=-2.0, high=6.0), NumericInput("b", 0.0, 1.0))
    prepared = Preprocessing(numeric, (), "y", {})
    assert Preprocessing.of(prepared.to_plain()) == prepared
    # What is not set is not written.
    assert list(prepared.to_plain()["numeric"][1]) == ["name", "mean", "std", "indicator"]
    frame = pd.DataFrame({"a": [100.0, math.nan, 0.0], "b": [5.5, -3.0, math.nan]})
    assert prepared.inputs(frame).x.tolist() == [[1.0, 5.5, 0.0], [0.0, -3.0, 1.0], [-0.5, 0.0, 0.0]]
    with pytest.raises(ValueError, match="'a': low must be below high"):
        Preprocessing.of({"target": "y", "numeric": [{"name": "a", "mean": 0, "std": 1, "low": 3, "high": 1}]})
