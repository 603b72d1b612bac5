"""Figures of runs and sweeps: what they show, and that every kind of run has one."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_examples import TRUTH, evaluations, report

from florets.reports import run_figures
from florets.reports.summary import RoundLine, round_line
from florets.strategies.base.report import FIRST_PHASE

RNG = np.random.default_rng(0)


def line(server_round: int, truth: Any = TRUTH, **changes: Any) -> RoundLine:
    return round_line(report(server_round, **changes), truth)


def titles(figure: Any) -> list[str]:
    return [axes.get_title(loc="left").partition(",")[0] for axes in figure.axes]


@pytest.mark.parametrize(
    ("lines", "panels"),
    [
        ([line(1)], 2),
        ([line(r, truth={}) for r in range(1, 5)], 1),
        ([line(r, evaluations={} if r % 5 else evaluations()) for r in range(1, 41)], 2),
        ([line(1, phase=FIRST_PHASE, assignment={"00": 0, "02": 1}), line(2, phase="refine")], 2),
        # What was measured once has no panel next to curves.
        ([line(r, evaluations=evaluations() if r == 3 else {}) for r in (1, 2, 3)], 1),
    ],
    ids=["one round", "no truth", "now and then", "phases", "tested once"],
)
def test_every_run_has_a_figure_without_a_warning(tmp_path: Path, lines: list[RoundLine], panels: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = run_figures.run_figure(lines)
        assert figure is not None
        (path,) = figure.save(tmp_path / "curves.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(figure.axes) == panels


def test_the_mean_over_runs_counts_in_each_round_the_runs_that_have_it() -> None:
    low = [line(r, evaluations=evaluations({"00": 0.5})) for r in (1, 2)]
    high = [line(1, evaluations=evaluations({"00": 1.0}))]
    mean = run_figures.mean_line([low, high], "accuracy")
    # 0.5 and 1.0 are a quarter from their mean; the single run in round 2 has no spread.
    assert (mean.x.tolist(), mean.y.tolist(), np.array(mean.least).tolist()) == ([1, 2], [0.75, 0.5], [0.5, 0.5])
    assert mean.spread == pytest.approx([math.sqrt(2 * 0.25**2), 0.0])


def test_a_sweep_shows_what_was_measured_more_than_once_and_names_its_bands() -> None:
    curves = {"clove": [[line(1), line(2)]], "other": [[line(1, truth={}), line(2, truth={})]]}
    whole = run_figures.sweep_figure(curves, "k=5")
    assert whole is not None
    assert titles(whole) == ["Clusters recovered: adjusted Rand index", "Test accuracy"]
    assert whole.axes[-1].get_xlabel() == "round"
    at_end = run_figures.sweep_figure({"clove": [[line(1, evaluations={}), line(2)]]})
    assert at_end is not None
    assert titles(at_end) == ["Clusters recovered: adjusted Rand index"]
    seeds = [[line(r, evaluations=evaluations({"00": value})) for r in (1, 2)] for value in (0.5, 1.0)]
    several = run_figures.sweep_figure({"clove": seeds})
    assert several is not None
    assert several.axes[-1].get_xlabel() == "round (band: ± std over seeds)"


@pytest.mark.parametrize(("num_clients", "num_models"), [(1, 1), (20, 20)])
def test_the_heatmap_is_drawn_for_few_and_many_clients(tmp_path: Path, num_clients: int, num_models: int) -> None:
    keys = [f"{i:03d}" for i in range(num_clients)]
    losses = RNG.uniform(0.01, 3, (num_clients, num_models))
    losses[0, 0] = math.nan
    clusters = {key: i % num_models for i, key in enumerate(keys)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = run_figures.losses_figure(keys, losses, clusters, clusters)
        assert figure is not None
        figure.save(tmp_path / "loss_matrix.png")
    # Taller than a screen, it would say no more.
    assert figure.get_figheight() < 9.1


def test_evidence_shows_the_number_of_groups_and_how_sure_it_is() -> None:
    alike = np.kron(np.eye(2), np.ones((2, 2))).tolist()
    groups = {"verdict": "groups", "k": 2, "p_value": 0.0025, "scores": [0.4, 0.2], "similarity": alike}
    figure = run_figures.evidence_figure({**groups, "clients": ["a", "b", "c", "d"], "groups": [0, 0, 1, 1]})
    assert titles(figure)[:2] == ["Score (p = 0.0025)", "Similarity of clients"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["K = 2"]
    # A line between the groups, across and down.
    assert [line.get_xydata().tolist() for line in figure.axes[1].lines] == [
        [[0, 1.5], [1, 1.5]],
        [[1.5, 0], [1.5, 1]],
    ]


def test_a_run_that_stopped_clustering_has_empty_panels_beside_those_that_went_on() -> None:
    kept = [run_figures.Spectrum(r, RNG.normal(size=(6, 3)), np.arange(6) % 2, [3, 2, 1]) for r in (1, 5)]
    rows = {"went on": kept, "stopped": kept[:1], "kept nothing": []}
    features, values = run_figures.features_figure(rows), run_figures.singular_values_figure(rows)
    assert features is not None
    assert values is not None
    assert [len(axes.texts) for axes in features.axes] == [0, 0, 0, 1]
    assert [[line.get_label() for line in axes.lines] for axes in values.axes] == [
        ["round 1", "round 5"],
        ["round 1"],
    ]
    assert run_figures.features_figure({}) is run_figures.singular_values_figure({"kept nothing": []}) is None


def test_features_are_drawn_where_their_principal_components_are_seen_obliquely() -> None:
    # Spread 4, 2 and 1 along the coordinates, in this order.
    features = np.array([[4.0, 0, 0], [-4, 0, 0], [0, 2, 0], [0, -2, 0], [0, 0, 1], [0, 0, -1]]) + 7
    places = np.abs(run_figures.in_a_plane(features))
    half = 0.5 * np.sqrt(0.5)
    assert places == pytest.approx(np.array([[4, 0], [4, 0], [0, 2], [0, 2], [half, half], [half, half]]))
    assert np.abs(run_figures.in_a_plane(np.array([[1.0], [3.0]]))) == pytest.approx(np.array([[1, 0], [1, 0]]))
    assert run_figures.in_a_plane(np.full((3, 2), 0.1)).tolist() == [[0, 0]] * 3
