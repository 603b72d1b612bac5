"""The leaderboard: skills by record, the answer, and rows with a folder of their own."""

import re
from pathlib import Path

import numpy as np
import pytest

import florets
from florets.papers.cells import Progress, places
from florets.papers.item import find_item
from florets.papers.skill import RESAMPLES, skill_of
from florets.papers.table import Table, body
from florets.reports.pooled import read_test_statistics

ITEM = """
title: Two kinds of data
seeds: 1
overrides: [statistics=true, measure=accuracy]
rows:
  a: {label: A, kind: groups, overrides: [k=4]}
  b: {label: B, kind: groups, overrides: [k=4, num_rounds=11]}
  c: {label: C, kind: alike, overrides: [k=4, num_rounds=12]}
columns:
  clove: {label: CLoVE, overrides: [strategy=clove]}
  fedavg: {label: FedAvg, overrides: [strategy=fedavg]}
  local: {label: Local, overrides: [strategy=local]}
  oracle: {label: Oracle, overrides: [strategy=oracle]}
measures: [skill]
"""
SKILLS = {
    **{("a", "clove"): 90.0, ("a", "fedavg"): 70.0, ("a", "local"): 80.0},
    **{("b", "clove"): 91.0, ("b", "fedavg"): 60.0, ("b", "local"): 90.8},
    **{("c", "clove"): 80.0, ("c", "fedavg"): 95.0, ("c", "local"): 70.0},
}


def records(mean: float) -> list[float]:
    # Resamples of all methods move alike: differences have an interval of half of a point.
    shared = np.random.default_rng(0).standard_normal(RESAMPLES)
    return [mean, *(mean + shared + 0.25 * np.random.default_rng(int(mean * 10)).standard_normal(RESAMPLES))]


@pytest.fixture
def item(tmp_path: Path) -> Path:
    (tmp_path / "item.yaml").write_text(ITEM)
    return tmp_path / "item.yaml"


def test_the_answer_is_a_line_for_each_kind_of_data(item: Path) -> None:
    read = find_item(str(item))
    some = list(places(read, {}, item.parent))
    found = {
        place.key: {0: Progress("finished", {"records": records(SKILLS.get(place.key, 99.0))})} for place in some
    }
    table = Table(read, some, found)
    text = body(table, "", "")
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    # The oracle is no method that anybody can choose.
    assert lines[0].startswith(
        "- **Groups** (A, B): **CLoVE**, mean rank 1.0 of 3; by record ahead of FedAvg in 2 of 2"
    )
    # Behind by 0.2 in B: not surely worse.
    assert lines[0].endswith(" Not surely worse: Local.")
    assert lines[1].startswith("- **Alike** (C): **FedAvg**, mean rank 1.0 of 3.")
    assert lines[2].startswith("- **All of them** (A, B, C): **CLoVE**, mean rank 1.3 of 3; ")
    pair = table.comparison.pair("clove", "local", table.comparison.rows)
    assert pair is not None
    assert pair.signs == (2, 0, 1)
    # Mean ranks, the best first; the oracle has none.
    ranks = re.findall(r"^\| (\w+) +\| ([\d.]*) ", text, re.MULTILINE)
    assert ranks[-4:] == [("CLoVE", "1.3"), ("FedAvg", "2.3"), ("Local", "2.3"), ("Oracle", "")]


def test_a_row_has_its_data_in_a_folder_below_data_dir(item: Path, tmp_path: Path) -> None:
    item.write_text(
        ITEM.replace("kind: alike,", "kind: alike, folder: of/c,").replace("[k=4, num_rounds=12]", "[k=4]")
    )
    all_places = list(places(find_item(str(item)), {"data_dir": str(tmp_path / "data")}, tmp_path))
    own = {place.row.name: place.config.data_dir for place in all_places if place.config is not None}
    assert own["c"] == str(tmp_path / "data" / "of" / "c")


@pytest.mark.slow
@pytest.mark.parametrize("regression", [False, True])
def test_skill_is_of_all_test_records_and_its_resamples_vary_by_their_standard_error(
    tmp_path: Path, regression: bool
) -> None:
    rng = np.random.default_rng(3)
    sites = {}
    for site in range(3):
        x = rng.standard_normal((160, 2)).astype(np.float32)
        y = x[:, 0] + 0.5 * rng.standard_normal(160) + site
        y = y.astype(np.float32) if regression else (y > 1).astype(np.int64)
        sites[f"s{site}"] = {"train": (x[:80], y[:80]), "test": (x[80:], y[80:])}
    keys = {"task.model": "linear", "num_rounds": 3, "statistics": True, "results_dir": tmp_path}
    run = florets.run(clients=sites, regression=regression, strategy="fedavg", **keys)
    statistics = read_test_statistics(run.folder)
    skill = skill_of(statistics)
    truth = np.concatenate([site["test"][1] for site in sites.values()]).astype(np.float64)
    inputs = np.concatenate([site["test"][0] for site in sites.values()])
    said = run.predict(inputs, model=0).frame()
    if regression:
        error = np.square(said.iloc[:, -1].to_numpy() - truth)
        assert skill[0] == pytest.approx(100 * (1 - error.mean() / truth.var()), abs=0.01)
        # Records are drawn anew within each site.
        within = np.sqrt(error.reshape(3, 80).var(axis=1).mean())
        assert np.std(skill[1:]) == pytest.approx(100 * within / truth.var() / np.sqrt(240), rel=0.4)
    else:
        accuracy = 100 * run.summary.final_accuracy
        own = skill_of(statistics, by_accuracy=True)
        assert own[0] == pytest.approx(accuracy, abs=0.01)
        p = accuracy / 100
        assert np.std(own[1:]) == pytest.approx(100 * np.sqrt(p * (1 - p) / 240), rel=0.4)
        # Log loss against that of the constant answer.
        share = np.mean(np.concatenate([site["train"][1] for site in sites.values()]))
        constant = -np.mean(np.log(np.where(truth == 1, share, 1 - share)))
        losses = [client.parts["test"].scores["log_loss"] for client in statistics.values()]
        assert skill[0] == pytest.approx(100 * (1 - np.mean(losses) / constant), abs=0.05)
    assert len(skill) == 1 + RESAMPLES
