"""`florets advise`: no federation, however odd its tables, leads to text with absurd figures or contradictions."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from florets.reports.pooled import PartStatistics, TestStatistics
from florets.studies.advise.advice import Advice, Evidence, advise
from florets.studies.advise.compare import ConstantAnswer, Criterion
from florets.studies.advise.measures import seconds_of, suitable
from florets.studies.advise.methods import RIDGE, Question, Setup
from florets.studies.advise.outcomes import Finding, Kind, Outcome
from florets.studies.advise.page import write_page
from florets.studies.advise.words import Words
from florets.task.training.figures import log_losses, sums_of, target_sums

Array = NDArray[np.float64]
_KINDS: tuple[Kind, ...] = ("groups", "lone", "none", "all_differ", "too_few", "open", "moving")
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
        """Least squares on values, or on indicators of classes as a stand-in for logits."""
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
            for place, part in enumerate(self.parts(key)[1:]):
                tests[place][key] = self.part(weights, *part, number)
        sums = {key: target_sums(own[1], self.classes) for key, own in train.items() if len(own[1]) >= 5}
        improving = bool(self.rng.random() < 0.2)
        rest = (dict.fromkeys(self.sites, 0), 10, 1.0, "somewhere", 1.0, 6, sums, improving)
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
    """Check ranges of all figures in a text, and that no two of its sentences contradict each other."""
    assert not re.search(r"\bnan\b|\binf\b|\d[eE][+-]?\d", text), text
    for figure in re.findall(r"R2 (-?\d+(?:\.\d+)?)", text):
        assert -1 <= float(figure) <= 1
    for figure in re.findall(r"(?:log loss) (-?\d+(?:\.\d+)?)", text):
        assert 0 <= float(figure) <= 5
    for figure in re.findall(r"AUC (-?\d+(?:\.\d+)?)", text):
        assert 0 <= float(figure) <= 1
    for figure in re.findall(r"accuracy (-?\d+(?:\.\d+)?) %", text):
        assert 0 <= float(figure) <= 100
    most = 10 if advice.criterion.measure == "log_loss" else 2
    for mean, half in re.findall(r"([+-]?\d+(?:\.\d+)?) ± (\d+(?:\.\d+)?)", text):
        assert max(abs(float(mean)), float(half)) <= most
    for own, constant in re.findall(r"RMSE (\d+(?:\.\d+)?) \(constant answer: (\d+(?:\.\d+)?)\)", text):
        assert float(own) <= 2 * float(constant)


def test_of_many_odd_federations_no_text_has_absurd_figures_or_contradicts_itself(tmp_path: Path) -> None:
    for seed in range(50):
        advice = Federation(seed).advice()
        said = Words(advice, _QUESTION, Setup(advice.criterion.measure, (1.0,), (), RIDGE))
        short = said.short
        check(short, advice)
        if seed % 25 == 0:
            page = write_page(tmp_path, said).read_text(encoding="utf-8").partition("<main>")[2]
            check(re.sub(r"<[^>]*>", " ", page), advice)
        contradictions(short, said)


def contradictions(text: str, said: Words) -> None:
    advice: Advice = said.advice
    unfit: Mapping[str, str] = advice.unfit
    assert ("Use: " in text) == (advice.chosen is not None) == (not text.startswith("Nothing to advise"))
    assert advice.chosen not in unfit
    assert advice.chosen is not None or "the advised method" not in text
    for name in unfit:
        # What did not converge is named once, and compared with nothing.
        assert not re.search(rf"^{re.escape(said.title(name))}: ", text, re.MULTILINE)
        assert re.search(rf"Not compared, because .*{re.escape(said.method(name))}", text)
    if advice.chosen is not None:
        # Of very few records nobody knows the constant's figure.
        assert not advice.over_constant.mean <= 0
        assert not re.search(rf"^{re.escape(said.title(advice.chosen))}: ", text, re.MULTILINE)
    if "differ by level" in text or "differ in their coefficients" in text:
        assert "One model for all (FedAvg): better" not in text
        assert "no different rule was detected" not in text
    if "One model serves them as well" in text:
        assert "One model per group (strategy=discovery): better" not in text
