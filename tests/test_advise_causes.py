"""`florets advise`: reasons why sites differ, from moments of their columns and counts of their classes."""

import numpy as np
import pytest

from florets.studies.advise.causes import cross_losses, differences, rule_of
from florets.studies.advise.outcomes import Moments, Site

HALF = np.array([100.0, 100.0])


def site(counts: np.ndarray = HALF, **columns: tuple[float, float]) -> Site:
    """A site with columns of this mean and standard deviation, over all of its records."""
    records = int(counts.sum())
    return Site({name: Moments(records, mean, std**2) for name, (mean, std) in columns.items()}, counts)


def test_sites_that_are_alike_have_no_reason_to_differ() -> None:
    alike = {name: site(x=(mean, 1.0), z=(5.0, 2.0)) for name, mean in (("a", 0.0), ("b", 0.1), ("c", -0.1))}
    assert differences(alike) == []


def test_columns_that_are_all_wider_by_one_factor_are_in_another_unit() -> None:
    usual = {name: site(x=(1.0, 1.0), y=(0.0, 1.0), z=(5.0, 2.0)) for name in "abc"}
    (reason,) = differences({**usual, "d": site(x=(3.0, 3.0), y=(0.0, 3.0), z=(15.0, 6.0))})
    assert (reason.kind, reason.sites, reason.factor) == ("unit", ("d",), pytest.approx(3.0))


def test_one_column_whose_mean_and_spread_have_one_factor_is_in_another_unit() -> None:
    usual = {name: site(x=(1.0, 1.0), y=(0.0, 1.0), z=(200.0, 40.0)) for name in "abc"}
    (reason,) = differences({**usual, "south": site(x=(1.0, 1.0), y=(0.0, 1.0), z=(200 / 38.67, 40 / 38.67))})
    assert (reason.kind, reason.sites, reason.factor) == ("unit", ("south",), None)
    assert [(one.column, one.factor) for one in reason.columns] == [("z", pytest.approx(1 / 38.67))]


def test_a_shifted_column_is_another_distribution_and_the_largest_shift_comes_first() -> None:
    usual = {name: site(x=(0.0, 1.0), z=(5.0, 2.0)) for name in "abc"}
    (reason,) = differences({**usual, "d": site(x=(1.0, 1.0), z=(9.0, 2.0))})
    assert (reason.kind, reason.sites) == ("inputs", ("d",))
    assert [(one.column, round(one.shift, 2)) for one in reason.columns] == [("z", 2.0), ("x", 1.0)]


def test_where_most_sites_depart_in_the_same_way_the_others_are_named() -> None:
    most = {name: site(x=(1.0, 1.0), z=(shift, 1.0)) for name, shift in (("a", 1.0), ("b", 1.0), ("c", -1.0))}
    (reason,) = differences({**most, "large": site(10 * HALF, x=(0.0, 1.0), z=(0.0, 1.0))})
    assert (reason.kind, reason.sites) == ("inputs", ("large",))
    assert [(one.column, round(one.shift, 2)) for one in reason.columns] == [("x", -1.0)]


def test_shares_of_the_classes_explain_inputs_as_far_as_their_variance_allows() -> None:
    # Within a class the deviation is 1; class means are 2 apart: the mixture's variance is 1 + 4 p (1 - p).
    def mixed(share: float, shift: float = 0.0) -> Site:
        counts = np.array([500 * (1 - share), 500 * share])
        return site(counts, x=(2 * share + shift, (1 + 4 * share * (1 - share)) ** 0.5))

    usual = {name: mixed(0.2) for name in "abc"}
    (reason,) = differences({**usual, "d": mixed(0.6)})
    assert (reason.kind, reason.sites, reason.elsewhere) == ("labels", ("d",), 0.2)
    assert dict(reason.shares) == {"d": 0.6}
    kinds = [one.kind for one in differences({**usual, "d": mixed(0.6, shift=2.0)})]
    assert kinds == ["inputs", "labels"]


def test_sites_of_few_records_or_one_class_are_no_reason() -> None:
    usual = {name: site(x=(0.0, 1.0)) for name in "abc"}
    tiny, single = site(np.array([10.0, 10.0]), x=(9.0, 1.0)), site(np.array([100.0, 0.0]), x=(9.0, 1.0))
    assert differences({**usual, "tiny": tiny, "single": single}, ["single"]) == []


def test_levels_of_a_target_are_label_shares_of_values() -> None:
    sites = {name: Site({}, None, Moments(100, mean, 1.0)) for name, mean in (("a", 0.0), ("b", 0.0), ("c", 2.0))}
    (reason,) = differences(sites)
    assert (reason.kind, reason.sites, dict(reason.shares)) == ("labels", ("c",), {"c": 2.0})


def test_groups_follow_other_rules_where_their_models_fail_on_each_other() -> None:
    losses = {"a": [0.1, 2.0], "b": [0.1, 3.0], "c": [1.5, 0.2], "d": [2.5, 0.4]}
    models = {"a": 0, "b": 0, "c": 1, "d": 1}
    assert cross_losses(("c", "d"), losses, models) == (pytest.approx(2.0), pytest.approx(0.3))
    reason = rule_of((("a", "b"), ("c", "d")), losses, models, gains=True)
    assert reason is not None
    assert (reason.kind, reason.sites, reason.cross) == ("rule", ("c", "d"), pytest.approx((2.0, 0.3)))
    assert rule_of((("a", "b"), ("c", "d")), losses, models, gains=False) is None
    alike = {key: [0.2, 0.25] if key in "ab" else [0.25, 0.2] for key in losses}
    assert rule_of((("a", "b"), ("c", "d")), alike, models, gains=True) is None
