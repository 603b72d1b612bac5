"""Features and singular values that CFL-GP clusters by: kept by a run, and drawn for runs and items."""

import re
from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.reports.run_figures import spectra_of
from florets.server_app.reproduce.item_file import read_item
from florets.strategies.base.averaging import GradientAveraging
from florets.strategies.base.report import ADVICE, RoundReport
from florets.strategies.cfl_gp.strategy import CFLGP
from tests.fakes import FakeClients, models

SHORT = ("strategy=cfl_gp", "num_rounds=6", "strategy.stop_unchanged=0")
ITEM = """
title: Features
seeds: 1
overrides: [num_rounds=4, strategy.stop_unchanged=0, "strategy.spectrum_rounds=[2,4]", checkpoint_every=0]
rows: {one: {label: a row, overrides: []}, other: {label: another, overrides: [strategy.compression=10]}}
columns: {cfl_gp: {overrides: [strategy=cfl_gp]}}
measures: [ari]
plot: {kind: KIND}
"""


def test_the_rounds_named_keep_features_and_all_singular_values() -> None:
    clients, seen = FakeClients([0.0, 0.2, 10.0, 10.2]), list[RoundReport]()
    strategy = CFLGP(k=2, averaging=GradientAveraging(0.1, "uniform"), stop_unchanged=0, spectrum_rounds=[4])
    strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=4, on_round=lambda report, _: seen.append(report))
    assert [len(report.details.get("singular_values", [])) for report in seen] == [0, 3, 0, 3]  # type: ignore[arg-type]
    assert [report.server_round for report in seen if "spectrum" in report.details] == [4]
    kept = seen[3].compared
    assert kept is not None
    assert (kept.kind, kept.clients) == ("features", tuple("0123"))
    # One vector of length 1 for each of two models: two values are not 0, and the features hold all of the profile.
    values, found = np.array(seen[3].details["spectrum"]), kept.vectors
    assert len(values) == 4
    assert values[2:] == pytest.approx(0, abs=1e-6)
    assert np.linalg.svd(found, compute_uv=False) == pytest.approx(values[:2], rel=1e-5)
    # Other groups have other gradients, whatever the model: the first two are alike, and the last two.
    gaps = np.linalg.norm(found[:, np.newaxis] - found, axis=2)
    assert gaps[0, 1] < 0.1 * gaps[0, 2]
    assert gaps[2, 3] < 0.1 * gaps[0, 2]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (
            ["strategy.spectrum_rounds=[2,3,5]"],
            "with strategy.period=2 and num_rounds=6 the rounds that cluster are 2, 4 and 6; leave out 3 and 5, or "
            "change strategy.period or num_rounds.",
        ),
        (["strategy.spectrum_rounds=[8]"], "leave out 8"),
        (["strategy.spectrum_rounds=[5]", "strategy.period=3"], ""),
        (
            ["strategy.spectrum_rounds=[6]", "strategy.cluster_rounds=4"],
            "and strategy.cluster_rounds=4 the rounds that cluster are 2 and 4; leave out 6",
        ),
        (["strategy.spectrum_rounds=[2]", "num_rounds=1"], "num_rounds=1 no round clusters"),
        (["strategy.spectrum_rounds=[3]", "num_rounds=20"], "cluster are 2, 4, 6, 8, 10, ..., 20; leave out 3"),
        (["strategy.spectrum_rounds=[4,2,4]"], "[4, 2, 4]: names 4 more than once; name each round once."),
        (["strategy.spectrum_rounds=[2]", "k=1"], "with k=1 no round clusters; leave strategy.spectrum_rounds out"),
    ],
)
def test_rounds_that_do_not_cluster_are_refused(given: list[str], rule: str) -> None:
    if not rule:
        compose([*SHORT, *given])
        return
    with pytest.raises(ConfigError, match=re.escape(rule)):
        compose([*[key for key in SHORT if f"{key.split('=')[0]}=" not in given[-1]], *given])


def test_rounds_after_the_end_of_clustering_are_named_once_it_has_stopped() -> None:
    clients, seen = FakeClients([0.0, 0.2, 10.0, 10.2]), list[RoundReport]()
    strategy = CFLGP(k=2, averaging=GradientAveraging(0.1, "uniform"), stop_unchanged=0.2, spectrum_rounds=[2, 8, 10])
    strategy.start(clients.grid(), models(4.0, 6.0), num_rounds=10, on_round=lambda report, _: seen.append(report))
    told = {report.server_round: report.details[ADVICE] for report in seen if ADVICE in report.details}
    assert list(told) == [next(report.server_round for report in seen if report.phase == "stable")]
    (words,) = told.values()
    assert re.fullmatch(
        r"strategy.spectrum_rounds: nothing is kept of 8, 10: clustering has stopped before round \d "
        r"\(strategy.stop_unchanged=0.2; 0 never stops it\)",
        str(words),
    )


@pytest.mark.parametrize(
    ("plot", "rule"),
    [
        ("{kind: features}", ""),
        ("{kind: singular_values}", ""),
        ("{kind: features, measure: ari}", "measure: there is no such key"),
        ("{kind: spectrum}", "must be grid or rows or curves or features or singular_values"),
    ],
)
def test_an_item_may_have_a_plot_of_its_runs(tmp_path: Path, plot: str, rule: str) -> None:
    (tmp_path / "item.yaml").write_text(ITEM.replace("{kind: KIND}", plot))
    if not rule:
        assert read_item(tmp_path / "item.yaml", "item").plot["kind"] in plot
        return
    with pytest.raises(ConfigError, match=rule):
        read_item(tmp_path / "item.yaml", "item")


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.parametrize("kind", ["features", "singular_values"])
def test_an_item_draws_what_its_runs_have_kept(tmp_path: Path, kind: str) -> None:
    (tmp_path / "item.yaml").write_text(ITEM.replace("KIND", kind))
    assert main(["reproduce", str(tmp_path / "item.yaml"), f"results_dir={tmp_path}"]) == 0
    (plot,) = (tmp_path / "reproduce").glob("item/**/plot.png")
    assert plot.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.pictures
def test_a_run_shows_its_features_in_its_report(tmp_path: Path) -> None:
    assert main([*SHORT, "strategy.spectrum_rounds=[2,6]", "quiet=true", f"results_dir={tmp_path}"]) == 0
    (folder,) = (path.parent for path in tmp_path.rglob("report.html"))
    assert (folder / "spectrum.png").is_file()
    assert "What was clustered" in (folder / "report.html").read_text()
    found = spectra_of(folder)
    assert [spectrum.server_round for spectrum in found] == [2, 6]
    assert found[0].clusters.tolist() == [number // 5 for number in range(20)]
    assert found[0].features.shape == (20, 4)
