"""`Preprocessing`: equal to a scikit-learn pipeline on the same records, and read back from JSON."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from florets.task.data.tables.agreement import agree
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.describe import describe_table
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.data.tables.read import Table


def records(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(3, n)),
            "kind": rng.choice(["red", "green", "blue", None], n, p=[0.5, 0.2, 0.2, 0.1]).astype(object),
            "y": rng.choice(["0", "1"], n).astype(object),
        }
    )


def pooled(*sites: pd.DataFrame) -> Preprocessing:
    declared = Declaration(target="y", min_count=1)
    described = {str(k): describe_table(Table(s), declared, np.arange(len(s))) for k, s in enumerate(sites)}
    found = agree(declared, described).preprocessing
    assert found is not None
    return found


def test_inputs_are_those_of_scikit_learns_pipeline_on_the_joined_records() -> None:
    north, south, new = records(200, 0), records(60, 1), records(40, 2)
    joined = pd.concat([north, south]).fillna(np.nan)
    found = pooled(north, south)
    # StandardScaler after the imputer sees less spread than the known values have.
    numeric = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False))
    transformer = ColumnTransformer([("n", numeric, ["age", "dose"]), ("w", words, ["kind"])]).fit(joined)
    prepared = found.inputs(new)
    np.testing.assert_allclose(prepared.x[:, :-1], transformer.transform(new.fillna(np.nan)), atol=1e-5)
    np.testing.assert_array_equal(prepared.x[:, -1], new["kind"].isna())
    np.testing.assert_array_equal(prepared.missing, new.isna().sum(axis=1))
    assert found.width == prepared.x.shape[1] == 7


def test_a_table_that_does_not_fit_is_refused() -> None:
    found = pooled(records(100, 0))
    with pytest.raises(ValueError, match=r"lacks 'dose' \(it has 'dosis'\); if a column has another name"):
        found.inputs(records(3, 0).rename(columns={"dose": "dosis"}))
    # A name that differs in its case alone comes first.
    with pytest.raises(ValueError, match=r"lacks 'age', 'dose' \(it has 'Dose'\)"):
        found.inputs(records(3, 0)[["kind", "dose"]].rename(columns={"dose": "Dose"}))
    with pytest.raises(ValueError, match="'dose' holds words here and numbers at the other sites"):
        found.inputs(records(3, 0).assign(dose="x"))
    with pytest.raises(ValueError, match="too large"):
        found.inputs(records(3, 0).assign(age=1e60))


@pytest.mark.parametrize(
    "change",
    [
        {"numeric": [{"name": "a", "mean": 0.0, "std": 0.0, "indicator": False}]},
        {"numeric": [{"name": ["a"], "mean": 0.0, "std": 1.0, "indicator": True}]},
        {"categorical": [{"name": "k", "categories": ["x"], "other": False, "mode": "y", "indicator": False}]},
        {"sites": {}},
    ],
)
def test_what_no_agreement_makes_is_refused(change: dict) -> None:
    plain = pooled(records(100, 0)).to_plain()
    with pytest.raises(ValueError, match="how tables are prepared cannot be read"):
        Preprocessing.of({**plain, **change})
    with pytest.raises(ValueError, match="cannot be read"):
        Preprocessing.of({name: value for name, value in plain.items() if name != "target"})
