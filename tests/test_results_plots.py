import math
import warnings

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from results_examples import FOUND, TRUTH, evaluations, report

from florets.reports.heatmap import _colour_scale, _order, _ticks, draw_loss_matrix
from florets.reports.look import line_style
from florets.reports.plots import (
    _end_of_phase_1,
    _points,
    _spread_labels,
    draw_curve,
    draw_curves,
    label_rounds,
    new_figure,
)
from florets.reports.statistics import Spread
from florets.reports.summary import round_line
from florets.server_app.sweep.sweep_plots import _over_runs, draw_sweep, settings_figure
from florets.strategies.base.report import FIRST_PHASE


def line(server_round, truth=TRUTH, **changes):
    return round_line(report(server_round, **changes), truth)


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def height_of(path):
    return int.from_bytes(path.read_bytes()[20:24], "big")


@pytest.mark.parametrize(
    "lines",
    [
        [line(1)],
        [line(r, stable=r > 2) for r in range(1, 5)],
        [line(r, truth={}) for r in range(1, 5)],
        [line(r, evaluations={} if r % 5 else evaluations()) for r in range(1, 41)],
        [line(r, evaluations=evaluations(dict.fromkeys(TRUTH), 10.0**-r)) for r in range(1, 6)],
        [line(r, participants=("00", "03")) for r in range(1, 4)],
        [line(1, phase=FIRST_PHASE, assignment={"00": 0, "02": 1}), line(2, phase="refine")],
    ],
    ids=["one round", "stable", "no truth", "evaluated now and then", "loss over decades", "participants", "phases"],
)
@pytest.mark.slow
def test_curves_are_drawn_without_a_warning(tmp_path, lines):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_curves(lines, tmp_path / "curves.png")
    assert is_png(tmp_path / "curves.png")


def test_the_end_of_phase_1_says_whose_ari_that_was():
    anchors = line(2, phase=FIRST_PHASE, assignment={"00": 0, "02": 1})
    assert _end_of_phase_1(anchors) == "end of phase 1 (ARI: 2 of 4 clients)"
    assert _end_of_phase_1(line(2, phase=FIRST_PHASE)) == "end of phase 1"
    assert _end_of_phase_1(line(2, truth={})) == "end of phase 1"


def test_what_was_measured_once_has_no_panel_beside_curves(tmp_path):
    heights = []
    for name, evaluated in (("once", (3,)), ("twice", (1, 3))):
        lines = [line(r, evaluations=evaluations() if r in evaluated else {}) for r in (1, 2, 3)]
        draw_curves(lines, tmp_path / f"{name}.png")
        heights.append(height_of(tmp_path / f"{name}.png"))
    assert heights == [480, 880]


def test_nothing_is_drawn_of_a_run_without_any_figure(tmp_path):
    assert not draw_curves([line(1, truth={}, evaluations={})], tmp_path / "curves.png")
    assert not draw_sweep({"clove": [[line(1, truth={}, evaluations={})]]}, tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def test_rounds_without_a_value_are_left_out_of_a_curve():
    rounds, values, std = _points([line(1), line(2, evaluations={}), line(3)], "accuracy", "accuracy_std")
    assert rounds.tolist() == [1, 3]
    assert values.tolist() == [0.75, 0.75]
    np.testing.assert_allclose(std, math.sqrt(1 / 32))


def test_the_mean_over_runs_counts_in_each_round_the_runs_that_have_it():
    low = [line(r, evaluations=evaluations({"00": 0.5})) for r in (1, 2)]
    high = [line(1, evaluations=evaluations({"00": 1.0}))]
    (rounds, mean, std), least = _over_runs([low, high], "accuracy")
    # 0.5 and 1.0 are a quarter from their mean; of the one run in round 2 there is no spread.
    assert (rounds.tolist(), mean.tolist(), least.tolist()) == ([1, 2], [0.75, 0.5], [0.5, 0.5])
    assert std.tolist() == pytest.approx([math.sqrt(2 * 0.25**2), 0.0])


def test_a_band_of_losses_ends_at_the_least_of_them():
    _, (axes,) = new_figure(4, 3)
    points = (np.array([1, 2]), np.array([0.3, 0.3]), np.array([0.6, 0.1]))
    draw_curve(axes, points, "black", False, np.array([0.04, 0.1]))
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    assert {round(float(y), 6) for x, y in edges if x == 1} == {0.04, 0.9}
    assert {round(float(y), 6) for x, y in edges if x == 2} == {0.2, 0.4}


def test_a_sweep_with_a_strategy_that_has_no_ari_is_drawn(tmp_path):
    curves = {"clove": [[line(1), line(2)]], "other": [[line(1, truth={}), line(2, truth={})]]}
    assert draw_sweep(curves, tmp_path / "curves.png", "k=5")
    assert is_png(tmp_path / "curves.png")


def test_a_sweep_has_no_panel_for_what_was_measured_once(tmp_path):
    whole = {"clove": [[line(1), line(2)], [line(1), line(2)]]}
    assert draw_sweep(whole, tmp_path / "whole.png")
    at_end = {"clove": [[line(1, evaluations={}), line(2)]]}
    assert draw_sweep(at_end, tmp_path / "end.png")
    # ARI alone, without accuracy's panel; a run of one round still has all it knows.
    assert height_of(tmp_path / "end.png") < height_of(tmp_path / "whole.png")
    assert draw_sweep({"clove": [[line(1)]]}, tmp_path / "one.png")
    assert height_of(tmp_path / "one.png") == height_of(tmp_path / "whole.png")


def test_labels_that_would_overlap_move_apart_around_their_middle_and_others_stay():
    assert _spread_labels([0.5, 0.5, 0.9], 0.1) == pytest.approx([0.45, 0.55, 0.9])
    assert _spread_labels([0.9, 0.1], 0.1) == pytest.approx([0.9, 0.1])
    assert _spread_labels([0.5, 0.4, 0.5], 0.2) == pytest.approx([7 / 15, 4 / 15, 10 / 15])
    assert _spread_labels([1.0, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert _spread_labels([], 0.1) == []


def test_rows_of_the_heatmap_are_sorted_by_true_cluster_then_model_then_key():
    keys = ["d", "c", "b", "a", "e"]
    truth = {"a": 1, "b": 0, "c": 0, "d": 0}
    assert [keys[row] for row in _order(keys, truth, {"a": 0, "b": 1, "c": 0, "d": 1})] == ["c", "b", "d", "a", "e"]


def test_the_colours_are_logarithmic_only_where_that_helps_and_is_possible():
    assert isinstance(_colour_scale(np.array([[0.01, 2.0]])), LogNorm)
    assert not isinstance(_colour_scale(np.array([[1.0, 2.0]])), LogNorm)
    assert not isinstance(_colour_scale(np.array([[0.0, 2.0]])), LogNorm)
    assert _colour_scale(np.array([[1.0, 1.0]])).vmin == 0.5
    assert _colour_scale(np.array([[math.nan]])).vmax == 1


def test_a_short_bar_of_many_decades_has_few_ticks():
    assert _ticks(np.array([0.04, 6.0]), 3.4) == (1, 2, 5)
    assert _ticks(np.array([150.0, 1.1e6, math.nan]), 1.4) == (1,)
    assert _ticks(np.array([0.1, 2.0]), 1.05) == (1, 2, 5)


@pytest.mark.parametrize(("num_clients", "num_models"), [(1, 1), (500, 5), (20, 20)])
@pytest.mark.slow
def test_the_heatmap_is_drawn_for_few_and_many_clients(tmp_path, num_clients, num_models):
    keys = [f"{i:03d}" for i in range(num_clients)]
    losses = np.random.default_rng(0).uniform(0.01, 3, (num_clients, num_models))
    losses[0, 0] = math.nan
    clusters = {key: i % num_models for i, key in enumerate(keys)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw_loss_matrix(keys, losses, clusters, clusters, tmp_path / "loss_matrix.png")
    assert is_png(tmp_path / "loss_matrix.png")
    # Taller than a screen, it would say no more: 9 inches.
    assert height_of(tmp_path / "loss_matrix.png") < 1440


def test_the_heatmap_needs_neither_truth_nor_assignment(tmp_path):
    assert draw_loss_matrix(list(TRUTH), np.ones((4, 2)), {}, {}, tmp_path / "loss_matrix.png")
    assert not draw_loss_matrix([], np.ones((0, 2)), {}, FOUND, tmp_path / "none.png")


def test_the_axis_of_rounds_says_what_a_band_is():
    rounds, band = np.array([1, 2]), np.array([0.0, 0.1])
    axes = new_figure(4, 3)[1][0]
    label_rounds(axes, [(rounds, band, 0 * band), (rounds, band, band)], "seeds")
    assert axes.get_xlabel() == "round (band: ± std over seeds)"
    label_rounds(axes, [(rounds, band, 0 * band)], "seeds")
    assert axes.get_xlabel() == "round"


@pytest.mark.slow
def test_equal_runs_leave_equal_pictures(tmp_path):
    for name in ("a.png", "b.png"):
        draw_curves([line(1), line(2)], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_lines_can_be_told_apart_without_colour_and_close_ends_have_a_legend():
    styles = [line_style(number) for number in range(8)]
    assert len({(str(style["linestyle"]), style["marker"]) for style in styles}) == 8
    spread = Spread.of([90.0, 92.0])
    far = {"CLoVE": [("2", spread), ("4", Spread.of([80.0]))], "IFCA": [("2", spread), ("4", Spread.of([95.0]))]}
    (axes,) = settings_figure(far, "accuracy %", "k", (0.0, 100.0)).axes
    assert axes.get_legend() is None
    assert [text.get_text() for text in axes.texts] == ["CLoVE", "IFCA"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "4"]
    close = {name: [("2", spread), ("4", Spread.of([value]))] for name, value in (("CLoVE", 94.0), ("IFCA", 94.1))}
    (axes,) = settings_figure(close, "accuracy %", "k", None).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["IFCA", "CLoVE"]
    # Names have no order: their points are not joined.
    (axes,) = settings_figure({"": [("CLoVE", spread), ("IFCA", spread)]}, "accuracy %", "strategy", None).axes
    assert axes.get_lines()[0].get_linestyle() == "None"
