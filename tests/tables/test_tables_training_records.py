"""Descriptions are of the training records that the run will have, and of no test record."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from florets.conf.compose import compose
from florets.server_app import data_agreement
from florets.server_app.data_agreement import agree_here
from florets.task.data.tables.agreement import agree
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.site_table import SiteTable
from florets.task.spec import DECLARED, PREPARED


def visits(folder: Path, n: int, seed: int, persons: bool = True, targets: int = 2) -> Path:
    """Write a table of several visits of each person."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.normal(50, 10, n).round(2),
        "dose": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n).round(3)),
        "visits": np.where(rng.random(n) < 0.1, np.nan, rng.integers(1, 4, n)),
        "y": rng.integers(0, targets, n),
    }
    if persons:
        columns = {"patient_id": 1000 + np.arange(n) // 3, **columns}
    folder.mkdir(parents=True)
    pd.DataFrame(columns).to_csv(folder / "data.csv", index=False)
    return folder / "data.csv"


def test_a_site_that_detects_repeating_persons_describes_no_test_record(tmp_path: Path) -> None:
    path = visits(tmp_path / "a", 120, 0)
    first = SiteTable.read((path,), {}, 0)
    found = agree(Declaration(), {"a": first.describe()})
    assert found.preprocessing is not None
    assert found.group == "patient_id"
    final = SiteTable.read((path,), {DECLARED: {"group": "patient_id"}, PREPARED: found.preprocessing.to_plain()}, 0)
    assert first.train.tolist() == final.train.tolist()
    assert not set(final.table.frame["patient_id"].iloc[final.train]) & set(
        final.table.frame["patient_id"].iloc[final.test]
    )
    np.testing.assert_allclose(
        found.preprocessing.numeric[0].mean, final.table.frame["age"].iloc[final.train].mean(), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("more", "asked"),
    [([], 1), (["task.table.incomplete=drop", "task.table.drop=[visits]"], 2), (["small"], 2), (["values"], 2)],
)
def test_statistics_are_of_the_final_training_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], asked: int
) -> None:
    """Here one site does not see that persons repeat, or that targets are values, or has other complete records."""
    data = tmp_path / "data"
    targets = 60 if more == ["values"] else 2
    paths = {key: visits(data / key, 90, seed, targets=targets) for seed, key in enumerate(("a", "b"))}
    if more in (["small"], ["values"]):
        paths["small"] = visits(data / "small", 18 if targets == 2 else 90, 5, targets=min(targets, 4))
        more = []
    config = compose(["experiment=own_data", "target=y", f"data_dir={data}", *more])
    calls: list[Any] = []
    once = data_agreement.describe_here
    monkeypatch.setattr(data_agreement, "describe_here", lambda *given: calls.append(given) or once(*given))
    nodes = [{"client-id": key, "data-dir": str(data / key)} for key in paths]
    found = agree_here(config, nodes)
    assert len(calls) == asked
    finals = {key: SiteTable.read((path,), found.table, config.seed) for key, path in paths.items()}
    joined = pd.concat([site.table.frame.iloc[site.train] for site in finals.values()])
    pooled = {one["name"]: one for one in found.table[PREPARED]["numeric"]}
    for name in ("age", "dose"):
        np.testing.assert_allclose(pooled[name]["mean"], joined[name].mean(), rtol=1e-12)
        np.testing.assert_allclose(pooled[name]["std"], joined[name].std(ddof=0), rtol=1e-9)
