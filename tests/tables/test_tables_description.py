"""Descriptions of tables: values by hand, and what a site does not send."""

import math

import numpy as np
import pandas as pd
import pytest

from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.describe import describe_table
from florets.task.data.tables.description import ColumnSummary, Description
from florets.task.data.tables.read import Table


def described(declared: Declaration | None = None, train: int | None = None, **columns) -> Description:
    frame = pd.DataFrame({name: pd.Series(values, dtype=_dtype(values)) for name, values in columns.items()})
    rows = np.arange(len(frame) if train is None else train)
    return describe_table(Table(frame), declared or Declaration(target="y"), rows)


def _dtype(values) -> type:
    return object if any(isinstance(value, str) for value in values) else np.float64


def column(found: Description, name: str) -> ColumnSummary:
    return next(one for one in found.columns if one.name == name)


def test_counts_sums_and_categories_by_hand() -> None:
    gap = math.nan
    found = described(
        train=7,
        a=[1, 2, 3, 4, 5, gap, gap, 99],
        b=[1, 2, 3, gap, gap, gap, gap, 99],
        word=["x", "x", "x", "x", "x", "rare", None, "test"],
        y=["1", "0", "1", "1", "0", "1.0", "1", "0"],
    )
    assert (found.records, found.train_records) == (8, 7)
    a, b, word = (column(found, name) for name in ("a", "b", "word"))
    assert (a.known, a.missing, a.distinct, a.mean, a.m2) == (5, 2, 5, 3.0, 10.0)
    # Fewer than min_count: counts alone.
    assert (b.known, b.missing) == (3, 4)
    assert math.isnan(b.mean)
    assert math.isnan(b.m2)
    assert (word.categories, word.other, word.missing) == ({"x": 5}, 1, 1)
    assert found.target is not None
    assert found.target.classes == {"0": 2, "1": 5}


def test_no_name_of_a_rare_category_and_no_value_of_a_small_column_is_sent() -> None:
    found = described(secret=[7.125] * 4 + [math.nan] * 36, word=["rare-word"] * 4 + ["x"] * 36, y=["0", "1"] * 20)
    text = found.to_json()
    assert "rare-word" not in text
    assert "7.125" not in text


def test_values_of_a_regression_are_never_sent_as_classes() -> None:
    twelve = [float(number) for number in range(12)]
    for declared, values, expected in (
        (Declaration(target="y"), twelve, {}),
        (Declaration(target="y", regression=True), [0.0, 1.0] * 6, {}),
        (Declaration(target="y", regression=False), twelve, {}),
        (Declaration(target="y", regression=False), twelve * 5, {str(n): 5 for n in range(12)}),
        (Declaration(target="y"), [0.0, 1.0, 2.0] * 4, {"0": 4, "1": 4, "2": 4}),
        (Declaration(target="y"), [0.5, 1.0] * 6, {}),
        (Declaration(target="y"), [0.0, 1.0], {"0": 1, "1": 1}),
    ):
        found = described(declared, a=range(len(values)), y=values)
        assert found.target is not None
        assert found.target.classes == expected


@pytest.mark.parametrize(
    ("name", "values", "role", "repeats"),
    [
        ("patient_id", [1000 + 7 * n % 997 for n in range(30)], "id", False),
        ("patient_id", [100 + n // 10 for n in range(30)], "id", True),
        ("counter", [(n * 7) % 30 for n in range(30)], "id", False),
        ("age", [20 + (n * 13) % 50 for n in range(60)], "input", False),
        ("ward_id", [n % 3 for n in range(60)], "input", False),
        ("thyroid", ["low", "normal", "high"] * 20, "input", False),
        ("mrn", [f"M{n // 3}" for n in range(60)], "id", True),
        ("name", [f"somebody {n}" for n in range(30)], "id", False),
        ("remark", [f"text {n // 2}" for n in range(60)], "input", False),
        ("remark", [f"text {n % 40}" for n in range(60)], "words", False),
        ("seen", [f"2024-0{1 + n % 9}-11 10:00" for n in range(30)], "date", False),
        ("seen", [f"{1 + n % 9}.3.2024" for n in range(30)], "date", False),
    ],
)
def test_ids_dates_and_texts_are_told_from_inputs(name: str, values: list, role: str, repeats: bool) -> None:
    labels = [str(place % 2) for place in range(len(values))]
    found = column(described(**{name: values}, y=labels), name)
    assert (found.role, found.repeats) == (role, repeats)
    if role != "input":
        assert math.isnan(found.mean)
        assert found.quantiles == ()
        assert found.categories == {}
    wanted = Declaration(target="y", columns=(name,))
    assert column(described(wanted, **{name: values}, y=labels), name).role == "input"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("y", [f"somebody {n}" for n in range(30)], "seems to hold ids"),
        ("y", [f"2024-03-{1 + n % 9:02}" for n in range(30)], "seems to hold dates"),
        ("y", [f"text {n % 20}" for n in range(30)], "too many different values"),
    ],
)
def test_a_target_that_names_records_is_refused(name: str, values: list[str], message: str) -> None:
    """The server chooses the target, and has the names of its classes."""
    with pytest.raises(ValueError, match=message) as caught:
        described(Declaration(target=name), **{"a": range(30), name: values})
    assert not any(value in str(caught.value) for value in values)


def test_where_a_subject_repeats_min_count_counts_subjects() -> None:
    frame = pd.DataFrame(
        {
            "a": [*[1.0, 2.0] * 4, *[math.nan] * 32],
            "word": pd.Series(["mine"] * 8 + ["x", "z"] * 16, dtype=object),
            "y": pd.Series(["odd"] * 8 + ["no", "yes"] * 16, dtype=object),
        }
    )
    # The first eight records are of two persons.
    subjects = np.array([0, 1] * 4 + list(range(2, 34)))
    found = describe_table(Table(frame), Declaration(target="y"), np.arange(40), subjects)
    assert math.isnan(column(found, "a").mean)
    assert column(found, "word").categories == {"x": 16, "z": 16}
    assert found.target is not None
    assert (found.target.classes, found.target.rare) == ({"no": 16, "yes": 16}, 8)
