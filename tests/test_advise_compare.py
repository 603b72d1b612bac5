"""`florets advise`: measures, intervals, the choice and causes by hand; no odd federation leads to absurd text."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from advise_examples import NONE, constant_of, given, outcome, part, values_part
from numpy.typing import NDArray

from florets.reports.pooled import PartStatistics, TestStatistics
from florets.studies.advise.advice import Advice, Evidence, advise
from florets.studies.advise.causes import differences, rule_of
from florets.studies.advise.compare import ConstantAnswer, Criterion, choose, num_effective
from florets.studies.advise.measures import seconds_of, suitable
from florets.studies.advise.methods import Question
from florets.studies.advise.outcomes import Finding, Kind, Moments, Outcome, Site
from florets.studies.advise.page import write_page
from florets.studies.advise.words import Words
from florets.task.training.figures import log_losses, sums_of, target_sums

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


Array = NDArray[np.float64]
_KINDS: tuple[Kind, ...] = ("groups", "lone", "none", "all_differ", "too_few", "open")
_QUESTION = Question.of(["data_dir=somewhere", "target=y", "min_clients=2", "pictures=false"])


class Federation:
    """Sites with a rule, levels and tables as they occur: heavy tails, collinear columns, few records."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.classes = int(rng.choice([0, 0, 2, 2, 3]))
        width, count = int(rng.integers(1, 7)), int(rng.choice([2, 3, 5, 12]))
        spread, tails = float(rng.choice([0.0, 0.3, 2.0])), float(rng.choice([1.0, 2.0, 30.0]))
        common, rare = rng.normal(size=width), float(rng.choice([0.0, 3.0]))
        self.sites: dict[str, tuple[Array, Array]] = {}
        for number in range(count):
            records = 3 * int(np.exp(rng.uniform(np.log(2), np.log(40))))
            x = rng.standard_t(tails, size=(records, width))
            if width > 2:
                x[:, 1] = x[:, 0] * (1 + 1e-7 * rng.normal(size=records))
                x[:, 2] = 1.0
            level, own = spread * rng.normal() * 3, common + spread * rng.normal(size=width)
            value = np.clip(x, -1e6, 1e6) @ own + level + rng.normal(size=records)
            if self.classes:
                cuts = np.array([rare, rare + 2.0])[: self.classes - 1]
                y = (value[:, np.newaxis] > cuts).sum(axis=1).astype(np.float64)
                if rng.random() < 0.1:
                    y[:] = 0
            else:
                y = value * float(10.0 ** rng.integers(-3, 7)) if number == 0 and rng.random() < 0.1 else value
            self.sites[f"s{number:02d}"] = x, y

    def parts(self, key: str) -> tuple[tuple[Array, Array], ...]:
        """Training, validation and test records."""
        x, y = self.sites[key]
        return tuple((x[part::3], y[part::3]) for part in range(3))

    def fitted(self, x: Array, y: Array, ridge: float) -> Array:
        """Least squares on values, or on indicators of classes in place of logits."""
        x = np.column_stack([np.ones(len(x)), x])
        goal = y[:, np.newaxis] if not self.classes else 8.0 * np.eye(self.classes)[y.astype(int)] - 4.0
        if not ridge:
            return np.linalg.pinv(x, rcond=1e-14) @ goal
        return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ goal)

    def outcome(self, name: str) -> Outcome:
        train = {key: self.parts(key)[0] for key in self.sites}
        pooled = [np.concatenate(arrays) for arrays in zip(*train.values(), strict=True)]
        tests: tuple[dict[str, PartStatistics], dict[str, PartStatistics]] = ({}, {})
        for number, (key, (x, y)) in enumerate(train.items()):
            ridge = {"local": 0.0, "slopes": 1e3}.get(name, 1.0)
            weights = self.fitted(*((x, y) if name in ("local", "slopes") else pooled), ridge)
            if name == "discovery":
                # A learning rate at which training diverges on one site, or on all.
                weights = weights * (1e8 if number % 2 else 1e20)
            for place, records in enumerate(self.parts(key)[1:]):
                tests[place][key] = self.part(weights, *records, number)
        sums = {key: target_sums(own[1], self.classes) for key, own in train.items() if len(own[1]) >= 5}
        rest = (dict.fromkeys(self.sites, 0), 10, 1.0, "somewhere", 1.0, 6, sums)
        return Outcome(name, tests[1], tests[0], *rest)

    def part(self, weights: Array, x: Array, y: Array, number: int) -> PartStatistics:
        outputs = np.column_stack([np.ones(len(x)), x]) @ weights
        labels = y.astype(np.int64) if self.classes else y
        sums = sums_of(outputs, labels, self.classes, np.random.default_rng(number))
        if self.classes:
            names: tuple[str, ...] = ("accuracy", "balanced_accuracy", "auc", "macro_f1", "log_loss")
            loss = float(log_losses(outputs, labels).mean())
            scores = {"accuracy": float((outputs.argmax(axis=1) == labels).mean())}
        else:
            names = ("r2", "mae", "rmse")
            errors = outputs[:, 0] - y
            loss = float(np.square(errors).mean())
            scores = {"mae": float(np.abs(errors).mean()), "rmse": loss**0.5}
        scores["loss"] = min(loss, 3.5e38)
        own = {} if sums is None else dict(zip(names, map(float, sums.figures), strict=True))
        return PartStatistics(len(y), {k: v for k, v in (own | scores).items() if np.isfinite(v)}, sums)

    def advice(self) -> Advice:
        names = ["fedavg", "intercept", "slopes", "local", "discovery"]
        outcomes = {name: self.outcome(name) for name in names}
        train = outcomes["fedavg"].train
        counts = {} if not self.classes else train
        one_class = tuple(sorted(key for key, own in counts.items() if np.count_nonzero(own) < 2))
        if len(one_class) == len(counts):
            one_class = ()
        measure = suitable(not self.classes)
        seconds = seconds_of(measure, [own for key, own in counts.items() if key not in one_class])
        criterion = Criterion.of(measure, outcomes["fedavg"].test, one_class, seconds)
        statistics = {
            key: TestStatistics({"test": test, "validation": outcomes["fedavg"].validation[key]}, train.get(key))
            for key, test in outcomes["fedavg"].test.items()
        }
        constant = ConstantAnswer.of(measure, statistics, seconds) if train else ConstantAnswer(measure)
        keys, kind = tuple(self.sites), _KINDS[int(self.rng.integers(len(_KINDS)))]
        groups = (keys[: len(keys) // 2], keys[len(keys) // 2 :]) if kind == "groups" else (keys,)
        lone = keys[-1:] if kind == "lone" else ()
        groups = (keys[:-1], lone) if lone else groups
        return advise(
            Finding(kind, groups, lone, 0.0025 if kind in ("groups", "lone", "all_differ") else 0.2),
            outcomes,
            criterion,
            constant,
            Evidence(one_class=one_class),
        )


def check(text: str, advice: Advice) -> None:
    """Check the ranges of all figures in a text."""
    assert not re.search(r"\bnan\b|\binf\b|\d[eE][+-]?\d", text), text
    for name, (least, most) in {"R2": (-1, 1), "log loss": (0, 5), "AUC": (0, 1), "accuracy": (0, 100)}.items():
        figures = [float(figure) for figure in re.findall(rf"{name} (-?\d+(?:\.\d+)?)", text)]
        assert all(least <= figure <= most for figure in figures), text
    most = 10 if advice.criterion.measure == "log_loss" else 2
    for mean, half in re.findall(r"([+-]?\d+(?:\.\d+)?) ± (\d+(?:\.\d+)?)", text):
        assert max(abs(float(mean)), float(half)) <= most


@pytest.mark.slow
def test_of_many_odd_federations_no_text_has_absurd_figures_or_contradicts_itself(tmp_path: Path) -> None:
    for seed in range(25):
        advice = Federation(seed).advice()
        said = Words(advice, _QUESTION)
        short = said.short
        check(short, advice)
        if seed % 12 == 0:
            page = write_page(tmp_path, said).read_text(encoding="utf-8").partition("<main>")[2]
            check(re.sub(r"<[^>]*>", " ", page), advice)
        contradictions(short, said)


def contradictions(text: str, said: Words) -> None:
    advice = said.advice
    assert ("Use: " in text) == (advice.chosen is not None) == (not text.startswith("Nothing to advise"))
    for name in advice.diverged:
        # What did not converge is named once, and compared with nothing.
        assert name != advice.chosen
        assert f"\n{said.title(name)}: " not in text
        assert re.search(rf"Not compared, because .*{re.escape(said.method(name))}", text)
    if advice.chosen is not None:
        # Of very few records nobody knows the constant's figure.
        assert not advice.over_constant.mean <= 0
        assert f"\n{said.title(advice.chosen)}: " not in text
