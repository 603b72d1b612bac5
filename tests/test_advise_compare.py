"""`florets advise`: measures, intervals, the choice and causes by hand."""

import math

import numpy as np
import pytest
from advise_examples import NONE, constant_of, given, outcome, part, values_part

from florets.reports.pooled import PartStatistics
from florets.studies.advise.advice import advise
from florets.studies.advise.causes import differences, rule_of
from florets.studies.advise.compare import Criterion, choose, num_effective
from florets.studies.advise.outcomes import Moments, Site

ACCURACY = Criterion("accuracy")


def test_many_sites_differ_by_their_spread_weighted_by_records() -> None:
    first, second = outcome("local", [0.9, 0.7] * 5), outcome("fedavg", [0.8] * 10)
    found = ACCURACY.difference(first.test, second.test)
    # Differences of +10 and -10 points: deviation 10.54.
    assert found.mean == pytest.approx(0.0, abs=1e-9)
    assert found.half == pytest.approx(1.959964 * 10.540926 / math.sqrt(10), rel=1e-6)
    # One site with most of the records: the others are few, and the interval is over the records.
    tests = [{**one.test, "large": part(0.8, 4000)} for one in (first, second)]
    assert num_effective(tests[0]) == pytest.approx(4400**2 / (10 * 40**2 + 4000**2))
    assert ACCURACY.difference(*tests).half < 1.0


def test_figures_are_over_the_records_of_all_clients_together() -> None:
    tests = {"small": part(1.0, 2), "large": part(0.5, 1000), "middle": part(0.9, 30)}
    assert ACCURACY.figure(tests) == pytest.approx((2 + 500 + 27) / 1032)


def test_clients_whose_records_are_too_few_for_sums_have_a_part_in_the_log_loss_and_in_r2() -> None:
    # Four validation records each: a loss is all that a client says of them.
    few = {str(number): PartStatistics(4, {"loss": 0.5 + 0.01 * number}) for number in range(12)}
    other = {key: PartStatistics(4, {"loss": test.scores["loss"] + 0.1}) for key, test in few.items()}
    found = Criterion("log_loss").difference(few, other)
    assert Criterion("log_loss").figure(few) == pytest.approx(0.555)
    assert (found.mean, found.half) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))
    # Of values the loss is the squared error in units of the targets' variance, which test records tell.
    rng = np.random.default_rng(0)
    targets = rng.normal(scale=3.0, size=400)
    large = values_part(targets, targets + rng.normal(size=400))
    mean_square = large.scores["rmse"] ** 2
    tests = {"large": PartStatistics(400, {**large.scores, "loss": mean_square / 9}, large.sums)}
    criterion = Criterion.of("r2", tests, ())
    assert criterion.figure(tests) == pytest.approx(large.scores["r2"])
    small = {"a": PartStatistics(4, {"loss": 0.5}), "b": PartStatistics(2, {"loss": 0.8})}
    assert criterion.figure(small) == pytest.approx(1 - 9 * (4 * 0.5 + 2 * 0.8) / (6 * targets.var()))


def test_over_all_records_the_interval_is_the_jackknifes_over_sites() -> None:
    rng = np.random.default_rng(0)
    targets = [rng.normal(size=12) for _ in range(11)]
    predictions = [[0.8 * y + rng.normal(size=12) * width for y in targets] for width in (0.3, 0.9)]
    tests = [
        {f"s{i:02d}": values_part(y, p) for i, (y, p) in enumerate(zip(targets, guess, strict=True))}
        for guess in predictions
    ]

    def r2(kept: list[int], guess: int) -> float:
        y, p = (np.concatenate([values[i] for i in kept]) for values in (targets, predictions[guess]))
        return float(1 - np.square(y - p).sum() / np.square(y - y.mean()).sum())

    criterion = Criterion.of("r2", tests[0], ())
    found = criterion.difference(*tests)
    everybody = list(range(11))
    without = [r2([i for i in everybody if i != j], 0) - r2([i for i in everybody if i != j], 1) for j in everybody]
    assert found.mean == pytest.approx(r2(everybody, 0) - r2(everybody, 1))
    error = math.sqrt(10 / 11 * np.square(np.array(without) - np.mean(without)).sum())
    assert found.half == pytest.approx(1.959964 * error)


def test_r2_over_all_records_of_few_sites_has_the_interval_of_a_paired_bootstrap() -> None:
    # Levels of +150 and -150: the spread within a site is a small part of the total, and one model that knows the
    # levels alone has an R2 of 0.8.
    rng = np.random.default_rng(3)
    level = [150.0, -150.0, 150.0, -150.0]
    slopes = [50 * rng.normal(size=22) for _ in level]
    targets = [at + slope + 50 * rng.normal(size=22) for at, slope in zip(level, slopes, strict=True)]
    levels_alone = [np.full(22, at) for at in level]
    predictions = [[at + slope for at, slope in zip(level, slopes, strict=True)], levels_alone]
    tests = [
        {f"s{i}": values_part(y, p, i) for i, (y, p) in enumerate(zip(targets, guess, strict=True))}
        for guess in predictions
    ]
    criterion = Criterion.of("r2", tests[0], ())
    everybody = np.concatenate(targets)
    total = np.square(everybody - everybody.mean()).sum()
    gains = [np.square(y - q) - np.square(y - p) for y, p, q in zip(targets, *predictions, strict=True)]
    drawn = [np.random.default_rng(site).integers(22, size=(200, 22)) for site in range(4)]
    resampled = sum(own[rows].sum(axis=1) for own, rows in zip(gains, drawn, strict=True)) / total
    found = criterion.difference(*tests)
    assert found.mean == pytest.approx(np.concatenate(gains).sum() / total)
    assert found.half == pytest.approx(1.959964 * resampled.std(ddof=1), rel=1e-4)
    assert found.is_gain


def test_the_simplest_method_is_chosen_that_none_beats_by_more_than_chance() -> None:
    fedavg, local = outcome("fedavg", [0.9] * 5), outcome("local", [1.0] * 5)
    tuned = outcome("tuned", [0.9, 0.9, 0.9, 0.925, 0.925])
    assert choose([fedavg, tuned], ACCURACY).name == "fedavg"
    assert choose([fedavg, tuned, local], ACCURACY).name == "local"
    diverged = {key: PartStatistics(40, {"loss": 3.4e38, "accuracy": 0.9}) for key in fedavg.test}
    assert choose([outcome("fedavg", []), local], ACCURACY).name == "local"
    assert ACCURACY.figure(diverged) == -math.inf


def test_what_is_not_better_than_the_constant_answer_is_never_advised() -> None:
    assert constant_of(outcome("fedavg", [0.9] * 5)).figure(ACCURACY) == 0.5
    advice = given(NONE, fedavg=[0.5] * 5, local=[0.55] * 5)
    assert advice.chosen is None
    assert advice.over_constant.mean == pytest.approx(5.0)
    assert given(NONE, fedavg=[0.5] * 5, local=[0.95] * 5).chosen == "local"
    # Good on validation records by luck, and no better than the constant on the test records.
    lucky = {"fedavg": outcome("fedavg", [0.9] * 5, test=[0.5] * 5)}
    assert advise(NONE, lucky, ACCURACY, constant_of(lucky["fedavg"])).chosen is None


HALF = np.array([100.0, 100.0])


def site(counts: np.ndarray = HALF, **columns: tuple[float, float]) -> Site:
    """A site with columns of this mean and standard deviation, over all of its records."""
    records = int(counts.sum())
    return Site({name: Moments(records, mean, std**2) for name, (mean, std) in columns.items()}, counts)


@pytest.mark.parametrize(
    ("own", "kind", "factor", "columns"),
    [
        ({"x": (3.0, 3.0), "y": (0.0, 3.0), "z": (600.0, 120.0)}, "unit", 3.0, {}),
        ({"x": (2.0, 1.0), "y": (0.0, 1.0), "z": (280.0, 40.0)}, "inputs", 1.0, {"z": 2.0, "x": 1.0}),
    ],
    ids=["all columns have one factor", "means are shifted"],
)
def test_a_site_in_another_unit_or_of_another_distribution_is_named_with_its_columns(
    own: dict[str, tuple[float, float]], kind: str, factor: float, columns: dict[str, float]
) -> None:
    usual = {name: site(x=(1.0, 1.0), y=(0.0, 1.0), z=(200.0, 40.0)) for name in "abc"}
    (reason,) = differences({**usual, "d": site(**own)})
    assert (reason.kind, reason.sites, reason.factor) == (kind, ("d",), pytest.approx(factor))
    assert {one.column: one.shift for one in reason.columns} == pytest.approx(columns, abs=0.01)


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


def test_levels_of_a_target_are_label_shares_of_values() -> None:
    sites = {name: Site({}, None, Moments(100, mean, 1.0)) for name, mean in (("a", 0.0), ("b", 0.0), ("c", 2.0))}
    (reason,) = differences(sites)
    assert (reason.kind, reason.sites, dict(reason.shares)) == ("labels", ("c",), {"c": 2.0})
    # Of few records too, as far as the usual variance allows; "the others" are all others; an unsent mean is none.
    few = {"d": (20, 3.0), "e": (20, -0.5), "f": (5, 1.0), "g": (4, math.nan)}
    sites |= {name: Site({}, None, Moments(count, mean, 1.0)) for name, (count, mean) in few.items()}
    (reason,) = differences(sites)
    assert dict(reason.shares) == {"c": 2.0, "d": 3.0}
    assert reason.elsewhere == pytest.approx((20 * -0.5 + 5 * 1.0) / 225)


def test_groups_follow_other_rules_where_their_models_fail_on_each_other() -> None:
    losses = {"a": [0.1, 2.0], "b": [0.1, 3.0], "c": [1.5, 0.2], "d": [2.5, 0.4]}
    models = {"a": 0, "b": 0, "c": 1, "d": 1}
    reason = rule_of((("a", "b"), ("c", "d")), losses, models, gains=True)
    assert reason is not None
    assert (reason.kind, reason.sites, reason.cross) == ("rule", ("c", "d"), pytest.approx((2.0, 0.3)))
    assert rule_of((("a", "b"), ("c", "d")), losses, models, gains=False) is None
    alike = {key: [0.2, 0.25] if key in "ab" else [0.25, 0.2] for key in losses}
    assert rule_of((("a", "b"), ("c", "d")), alike, models, gains=True) is None
