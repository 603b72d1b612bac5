"""Splits of tables: stratified, by subject, and equal to scikit-learn's where published splits are."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from florets.conf.compose import compose
from florets.server_app import data_agreement
from florets.server_app.data_agreement import agree_here
from florets.task.client_data import ClientData, hold_out, with_validation
from florets.task.data.splits import split_rows
from florets.task.data.tables.agreement import agree
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.site_table import SiteTable
from florets.task.randomness import client_number
from florets.task.spec import DECLARED, PREPARED
from florets.task.training.folds import disjoint_folds

SUBJECTS = np.repeat(np.arange(20), [1, 2, 3, 4, 5] * 4)


def test_classes_and_quantiles_have_the_same_share_on_both_sides() -> None:
    classes = np.repeat([0.0, 1.0, 2.0], [70, 20, 10])
    train, test = split_rows(classes, None, 0.2, np.random.default_rng(1), False)
    assert np.bincount(classes[test].astype(int)).tolist() == [14, 4, 2]
    assert sorted([*train, *test]) == list(range(100))
    values = np.random.default_rng(0).exponential(size=200)
    _, test = split_rows(values, None, 0.2, np.random.default_rng(1), True)
    edges = np.quantile(values, np.linspace(0, 1, 11)[1:-1])
    assert np.bincount(np.searchsorted(edges, values[test])).tolist() == [4] * 10


@pytest.mark.parametrize("seed", range(2))
def test_a_subject_is_on_one_side_of_every_split(seed: int) -> None:
    y = np.arange(len(SUBJECTS)) % 2
    train, test = split_rows(y.astype(float), SUBJECTS, 0.2, np.random.default_rng(seed), False)
    assert not set(SUBJECTS[train]) & set(SUBJECTS[test])
    assert len(train) + len(test) == len(SUBJECTS)
    assert 5 <= len(test) <= 20
    x = torch.arange(float(len(SUBJECTS))).reshape(-1, 1)
    part = ClientData(
        x, torch.from_numpy(y), x[:1], torch.zeros(1, dtype=torch.int64), 0, subjects=torch.from_numpy(SUBJECTS)
    )
    rng = np.random.default_rng(seed)
    rest, (held, _) = hold_out(part, rng)
    kept = with_validation(part, 0.25, rng, stratify=True)
    assert kept.x_validation is not None
    for left, out in ((rest, held), (kept, kept.x_validation)):
        assert left.subjects is not None
        inside = set(SUBJECTS[left.x_train.flatten().int()])
        assert inside == set(left.subjects.tolist())
        assert not inside & set(SUBJECTS[out.flatten().int()])
        assert len(left.x_train) + len(out) == len(x)
        assert 6 <= len(out) <= 25
    folds = disjoint_folds(x, part.y_train, 3, 12, rng, part.subjects)
    whose = [set(SUBJECTS[fold]) for fold in folds]
    assert [len(fold) for fold in folds] == [12] * 3
    assert sum(map(len, whose)) == len(set.union(*whose))


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
    [([], 1), (["small"], 2), (["values"], 2)],
)
def test_statistics_are_of_the_final_training_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], asked: int
) -> None:
    """Here one site does not see that persons repeat, or that targets are values."""
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
    finals = {
        key: SiteTable.read((path,), found.table, config.seed, client_number(key)) for key, path in paths.items()
    }
    joined = pd.concat([site.table.frame.iloc[site.train] for site in finals.values()])
    pooled = {one["name"]: one for one in found.table[PREPARED]["numeric"]}
    for name in ("age", "dose"):
        np.testing.assert_allclose(pooled[name]["mean"], joined[name].mean(), rtol=1e-12)
        np.testing.assert_allclose(pooled[name]["std"], joined[name].std(ddof=0), rtol=1e-9)
