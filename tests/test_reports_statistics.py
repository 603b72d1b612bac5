"""Means, intervals, paired tests and their correction, by hand."""

import math

import pytest

from florets.papers.skill import difference, pair, signed_rank
from florets.reports import statistics
from florets.studies.advise.compare import Difference


def test_spread_and_interval_by_hand() -> None:
    spread = statistics.Spread.of([1.0, 2.0, 3.0, 4.0])
    assert (spread.number, spread.mean) == (4, 2.5)
    assert spread.deviation == pytest.approx((5 / 3) ** 0.5)
    # t(3) at 97.5 % is 3.1824.
    assert spread.high - spread.mean == pytest.approx(3.1824 * (5 / 3) ** 0.5 / 2, abs=1e-4)
    assert statistics.Spread.of([7.0]).mean == 7.0
    assert math.isnan(statistics.Spread.of([7.0]).deviation)


def test_an_interval_on_the_logit_scale_stays_inside_the_range() -> None:
    # Mean 0.95, standard error 0.05 / sqrt(3) = 0.028868, t(2) 4.3027, derivative of the logit 1 / 0.0475:
    # 2.9444 ± 2.6149, of which the logistic function is 0.5817 and 0.9962.
    spread = statistics.Spread.of([0.90, 0.95, 1.00], statistics.FRACTION)
    assert (spread.low, spread.high) == (pytest.approx(0.5817, abs=1e-4), pytest.approx(0.9962, abs=1e-4))
    percent = statistics.Spread.of([90.0, 95.0, 100.0], statistics.PERCENT)
    assert (percent.low, percent.high) == (pytest.approx(100 * spread.low), pytest.approx(100 * spread.high))
    # Without a range it would reach over the end: 0.95 + 0.1242.
    assert statistics.Spread.of([0.90, 0.95, 1.00]).high == pytest.approx(1.0742, abs=1e-4)
    # An ARI of 0.25 is in the middle of its range from -1/2 to 1: the interval is symmetric there.
    ari = statistics.Spread.of([-0.3, 0.8], statistics.ARI)
    assert ari.high - ari.mean == pytest.approx(ari.mean - ari.low)
    assert -0.5 < ari.low < -0.49
    # At the end of the range all values are equal.
    assert statistics.Spread.of([1.0, 1.0, 1.0], statistics.FRACTION).low == 1.0


def test_pairs_are_equal_seeds_and_few_have_no_test() -> None:
    assert statistics.paired({0: 1.0, 2: 5.0, 3: 1.0}, {2: 4.0, 0: 3.0, 9: 0.0}) == [-2.0, 1.0]
    assert statistics.paired_p([1.0, 2.0]) is None
    # Equal differences have no spread to be measured by, be it for the last bit of a float.
    assert statistics.paired_p([0.0] * 8) is None
    assert statistics.paired_p([0.3 - 0.2, 0.2 - 0.1, 0.1]) is None


def test_the_paired_t_test_by_hand() -> None:
    # t = 2 / (1 / sqrt(3)) = sqrt(12); with 2 degrees of freedom p = 1 - t / sqrt(t^2 + 2) = 1 - sqrt(12 / 14).
    assert statistics.paired_p([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14))
    assert statistics.paired_p([-1.0, -2.0, -3.0]) == pytest.approx(1 - math.sqrt(12 / 14))


def test_holms_correction_by_hand() -> None:
    # In order 0.01 * 3, 0.02 * 2 and 0.04: the last may not fall below the one before.
    assert statistics.holm([0.04, 0.01, None, 0.02]) == pytest.approx([0.04, 0.03, None, 0.04])
    assert statistics.holm([0.03, 0.02]) == pytest.approx([0.04, 0.04])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([None]) == [None]


def test_differences_are_paired_by_record_and_by_seed() -> None:
    # Resamples differ by 1 and 3 in one seed, by 3 and 5 in the other: variance 2 in each, and 2 between the seeds.
    first = {0: [12.0, 11.0, 13.0], 1: [14.0, 13.0, 15.0], 2: [99.0, 0.0, 0.0]}
    second = {0: [10.0, 10.0, 10.0], 1: [10.0, 10.0, 10.0]}
    found = difference(first, second)
    # Seeds differ by no more than their records do: the variance of the mean is 2 / 2.
    assert found == Difference(3.0, pytest.approx(1.959964))
    assert found.is_gain
    assert difference(second, first).is_loss
    apart = {0: [12.0, 11.0, 13.0], 1: [18.0, 17.0, 19.0]}
    # Between seeds the variance is 18, 16 more than the records': 2 / 2 + 16 / 2.
    assert difference(apart, second) == Difference(5.0, pytest.approx(1.959964 * 3))
    assert not difference(apart, second).is_gain
    assert not difference({0: [1.0]}, {0: [0.0]}).is_gain
    assert difference({0: [1.0]}, {1: [0.0]}) is None


def test_signed_rank_odds_by_hand() -> None:
    assert signed_rank([0.1, -0.2, 0.3, 0.0]).same == 1.0
    far = signed_rank([5.0] * 8)
    # Only draws with most weight on the observation at 0 are not better: its square is over one half.
    assert far.better > 0.99
    assert far.worse == 0.0
    two = signed_rank([3.0, -3.0] * 4)
    assert two.better == pytest.approx(two.worse, abs=0.02)
    assert sum((two.better, two.same, two.worse)) == pytest.approx(1)


def test_a_pair_is_compared_where_both_have_runs() -> None:
    own = {"x": {0: [2.0, 2.1, 1.9]}, "y": {0: [1.0, 1.0, 1.1]}, "z": {0: [0.0, 0.0, 0.1]}}
    other = {"x": {0: [1.0, 1.0, 1.0]}, "y": {0: [1.0, 1.1, 0.9]}}
    found = pair(own, other, ["x", "y", "z"])
    assert found is not None
    assert list(found.differences) == ["x", "y"]
    assert found.signs == (1, 0, 1)
    assert pair(own, {}, ["x"]) is None
