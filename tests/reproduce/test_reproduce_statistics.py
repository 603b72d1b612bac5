"""Spread, intervals and pairs, by hand."""

import pytest

from florets.server_app.reproduce.measures import MEASURES
from florets.server_app.results.statistics import Spread, bootstrap, evidence, paired, signed_rank_p


def test_spread_and_interval_by_hand() -> None:
    spread = Spread.of([1.0, 2.0, 3.0, 4.0])
    assert (spread.number, spread.mean) == (4, 2.5)
    assert spread.deviation == pytest.approx((5 / 3) ** 0.5)
    # t(3) at 97.5 % is 3.1824.
    assert spread.high - spread.mean == pytest.approx(3.1824 * (5 / 3) ** 0.5 / 2, abs=1e-4)
    assert Spread.of([7.0]).mean == 7.0
    assert Spread.of([7.0]).deviation != Spread.of([7.0]).deviation


def test_pairs_are_equal_seeds_and_few_have_no_test() -> None:
    assert paired({0: 1.0, 2: 5.0, 3: 1.0}, {2: 4.0, 0: 3.0, 9: 0.0}) == [-2.0, 1.0]
    assert signed_rank_p([1.0] * 5) is None
    assert signed_rank_p([0.0] * 8) is None
    # All six differences on one side: 2 / 2^6.
    assert signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)


def test_the_bootstrap_of_few_pairs_takes_all_samples() -> None:
    assert bootstrap([1.0]) is None
    assert bootstrap([1.0] * 6) is None
    # Of 27 samples each end is one, more than 2.5 %: the range.
    assert bootstrap([3.0, 1.0, 2.0]) == (1.0, 3.0)
    # Of 3,125 samples 1 has the mean 10, 20 have 8 and 160 have 6: with them the outer 79 are reached.
    low, high = bootstrap([0.0, 0.0, 0.0, 0.0, 10.0]) or (0.0, 0.0)
    assert (low, high) == (0.0, 6.0)
    assert evidence([3.0, 1.0, 2.0], "{:.0f}".format) == "bootstrap [1, 3]"
    assert evidence([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{:.0f}".format) == "p 0.031"
    assert evidence([1.0], "{:.0f}".format) == ""


@pytest.mark.parametrize(
    ("mean", "deviation", "shown"),
    [
        (0.04019, 0.00007697, "0.00008"),
        (0.04484, 0.003289, "0.00329"),
        (1.25e-7, 2e-9, "2e-09"),
        (12.0, 0.25, "0.25"),
    ],
)
def test_a_spread_has_the_decimals_of_its_mean(mean: float, deviation: float, shown: str) -> None:
    assert MEASURES["loss"].deviation(mean, deviation) == shown
    assert MEASURES["accuracy"].deviation(mean, deviation) == f"{deviation:.1f}"
