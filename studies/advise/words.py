"""Advice in plain words: the answer, why, and what would change it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from florets.reports.console import counted, duration, listed, size
from florets.reports.pooled import PartStatistics
from florets.studies.advise.advice import Advice
from florets.studies.advise.causes import Reason
from florets.studies.advise.compare import QUANTILE, TRIFLE, is_over_records, joined_accuracy
from florets.studies.advise.measures import (
    FORMS,
    Name,
    amount,
    capital,
    named,
    plain,
    range_of,
    unit_of,
    value,
)
from florets.studies.advise.methods import METHODS, Question, command
from florets.studies.advise.outcomes import Kind

_MOST_NAMES = 6
_MOST_COLUMNS = 3
_MOST_GROUPS = 5
_MOST_LISTED = 8
_MOST_ODD = 3

VERDICTS: dict[Kind, str] = {
    "groups": " in {k} groups ({p})",
    "lone": ", no groups; no other {site} resembles {lone} ({p})",
    "none": ", no groups ({p})",
    "all_differ": ", each different from all others ({p})",
    "too_few": "; groups cannot be tested for: too few records or {site}s",
    "open": "; groups were not tested for, which takes more rounds (num_rounds) or more {site}s per round",
}
"""Second half of the answer, after the number of sites, by the kind of finding."""


@dataclass(frozen=True)
class SiteRow:
    """One site: its group, from 1, its records, and its figures by the advised method, alone and by one for all.

    NaN is what is not known; `note` says why the site enters no comparison.
    """

    key: str
    name: str
    group: int | None
    train: int
    test: int
    advised: float
    alone: float
    one_model: float
    note: str = ""


class Words:
    """Texts of one advice; `site` is what a client is called, and `rows` is the table of sites."""

    def __init__(self, advice: Advice, question: Question) -> None:
        self.advice, self.question = advice, question
        self.site = "site" if question.is_own else "client"
        self.measure = advice.criterion.measure
        self.is_regression = self.measure == "r2"

    @cached_property
    def rows(self) -> list[SiteRow]:
        """A row for each client that has a result by any method, sorted by key."""
        return [self._row(key) for key in sorted({key for one in self.advice.outcomes for key in one.test})]

    def _row(self, key: str) -> SiteRow:
        advice, criterion, outcomes = self.advice, self.advice.criterion, self.advice.outcomes
        groups = advice.finding.groups if len(advice.finding.groups) > 1 else ()
        known = {one.name: one.test[key] for one in advice.fit if key in one.test}

        def figure(test: PartStatistics | None) -> float:
            return math.nan if test is None else criterion.own(test)

        # Of classes the counts; of values number, mean and sum of squares.
        train = next((one.train[key] for one in outcomes if key in one.train), None)
        return SiteRow(
            key,
            advice.name(key),
            next((number for number, group in enumerate(groups, start=1) if key in group), None),
            0 if train is None else int(train[0] if self.is_regression else train.sum()),
            max(one.test[key].n for one in outcomes if key in one.test),
            figure(advice.best.test.get(key)),
            figure(known.get("local")),
            figure(known.get("fedavg")),
            "one class only" if key in advice.evidence.one_class else "few records" if key in advice.few else "",
        )

    @property
    def p(self) -> str:
        """The p value of the search for groups, and how far those of two halves of the records agree."""
        finding = self.advice.finding
        stable = "" if finding.stability is None else f", stability {finding.stability:.2f}"
        return "no test" if finding.p_value is None else f"p = {finding.p_value:.2g}{stable}"

    @property
    def verdict(self) -> str:
        """The finding in words."""
        finding = self.advice.finding
        known = {"site": self.site, "k": len(finding.groups), "lone": self.named(finding.lone), "p": self.p}
        return self.sites(finding.num_clients) + VERDICTS[finding.kind].format(**known)

    def method(self, name: str) -> str:
        """Return a method's name within a sentence."""
        return METHODS[name].text.format(site=self.site)

    def title(self, name: str) -> str:
        """Return a method's name at the beginning of a row or a sentence."""
        return capital(self.method(name))

    @property
    def answer(self) -> str:
        """The answer in one line."""
        finding = self.verdict
        if self.advice.chosen is None:
            return f"Nothing to advise yet: no method is better than the constant answer beyond chance. {finding}."
        units = self._with_other_units
        asked_again = f", until the unit at {self.named(units)} is declared: then ask again" if units else ""
        return f"{finding}: {self.method(self.advice.best.name)}{asked_again}."

    @property
    def _with_other_units(self) -> list[str]:
        return sorted({key for one in self.advice.evidence.reasons if one.kind == "unit" for key in one.sites})

    @property
    def interval(self) -> str:
        """What the intervals are over, and which direction is better."""
        tests, form = self.advice.best.test, FORMS[self.measure]
        better = f"{capital(form.title)} over all records; {'higher' if form.higher else 'lower'} is better."
        points = " Points are percentage points." if form.percent else ""
        over = f"over {self.site}s like these"
        if is_over_records(tests):
            these = self.sites(len(tests))
            over = f"for these {these}, from their test records; it says nothing about other {self.site}s"
        return f"{better}{points} ± is a 95 % interval {over}."

    @property
    def command(self) -> str:
        """The command that uses the advised method."""
        best = self.advice.best
        return command(self.question, best.name, best.rate, best.rounds)

    @property
    def short(self) -> str:
        """The answer for the screen."""
        best, lines = self.advice.best, [self.answer, *self.reasons, self.interval]
        if self.advice.chosen is not None:
            sent = f"{size(best.num_bytes)} sent and received by all {self.site}s in {counted(best.rounds, 'round')}"
            lines += [f"Cost: {sent}, {duration(best.seconds)} in this trial.", f"Use: {self.command}"]
        return "\n".join(lines)

    def sites(self, number: int) -> str:
        """Return a number of sites (clients, in a simulation)."""
        return counted(number, self.site)

    def named(self, keys: Sequence[str], most: int = _MOST_NAMES) -> str:
        """Return names of clients, of more than `most` the first; numbers are called what they are of."""
        names = [self.advice.name(key) for key in keys]
        if not any(name.isdecimal() for name in names):
            return listed(names, most)
        return f"{self.site}{'' if len(names) == 1 else 's'} {listed(names, most)}"

    @property
    def reasons(self) -> list[str]:
        """What the answer stands on, in a few sentences, the most important first."""
        first = self._useless() if self.advice.chosen is None else self._figures()
        parts = (first, self._groups(), self._differences(), self._lone(), self._gains(), self._apart())
        return [text for part in parts for text in part]

    def _useless(self) -> Iterator[str]:
        """Yield that nothing was learned, and what to do about it."""
        advice, criterion = self.advice, self.advice.criterion
        best, constant = criterion.figure(advice.best.test), advice.constant.figure(criterion)
        name = self.method(advice.best.name)
        if math.isinf(best):
            yield f"Training diverged, even with the best method: {name}."
        else:
            figures = f"{named(best, self.measure)}; the constant answer reaches {value(constant, self.measure)}"
            yield f"On the test records the best method, {name}, reaches {figures}."
        yield (
            "Check that the inputs can predict the target, that units and codes agree (`florets check`), and that "
            "there are enough records; then try other inputs or another model (task.model)."
        )

    def _figures(self) -> Iterator[str]:
        """Yield what is expected."""
        advice, criterion = self.advice, self.advice.criterion
        tests = advice.best.test
        figures = [self._against_constant(self.measure, criterion.figure(tests), advice.constant.figure(criterion))]
        for name in criterion.seconds:
            figure = replace(criterion, measure=name).figure(tests)
            if math.isfinite(figure):
                figures.append(self._against_constant(name, figure, advice.constant.seconds.get(name, math.nan)))
        yield f"Expected on new records: {', '.join(figures)}."

    @staticmethod
    def _against_constant(measure: Name, figure: float, constant: float) -> str:
        known = f" (constant answer: {value(constant, measure)})" if math.isfinite(constant) else ""
        return f"{named(figure, measure)}{known}"

    def _groups(self) -> Iterator[str]:
        finding, chosen = self.advice.finding, self.advice.chosen
        if finding.kind != "groups":
            return
        if len(finding.groups) <= _MOST_GROUPS:
            yield f"The groups: {self.listed_groups}."
        if chosen == "fedavg":
            yield "One model serves them as well as one per group does."
        elif chosen in ("intercept", "slopes") and (gain := self.advice.against("discovery")):
            what = "An intercept" if chosen == "intercept" else "A set of coefficients"
            more = "explains more than" if gain.is_gain else "serves as well as a model for each of"
            yield f"{what} per {self.site} {more} the {len(finding.groups)} groups that were detected ({self.p})."

    @property
    def listed_groups(self) -> str:
        """The members of each group."""
        return " | ".join(map(self.named, self.advice.finding.groups))

    def _differences(self) -> Iterator[str]:
        """Yield in which respects sites differ, one explanation for each."""
        for reason in self.advice.evidence.reasons:
            yield self._reason(reason)
            if reason.kind == "rule":
                yield from self._swapped()

    def _reason(self, reason: Reason) -> str:
        """Return a reason in words: where, what, and by how much."""
        who = self.named(reason.sites)
        if len(reason.sites) > _MOST_LISTED:
            who = self.sites(len(reason.sites))
        if reason.kind == "unit":
            factor = reason.factor
            times = f"{factor:.2g} times" if factor > 1 else f"1/{1 / factor:.2g} of"
            return (
                f"Inputs: all columns of {who} are about {times} those of the other {self.site}s, as with another "
                "unit. Declare the unit (scale in node.toml); the rule may be the same."
            )
        if reason.kind == "inputs":
            # Where most depart they differ among one another: no column sets all of them apart from the rest.
            most = 2 * len(reason.sites) > self.advice.finding.num_clients
            what = "from one another" if most else f"from those of the other {self.site}s"
            columns = ", ".join(map(str, reason.columns[:_MOST_COLUMNS]))
            return f"Inputs: the distributions at {who} differ {what}, most of all in {columns}."
        if reason.kind == "labels":
            shares = sorted(reason.shares.values())
            if self.is_regression:
                there = range_of(shares, plain)
                return f"Target: its mean is {there} at {who}, and {plain(reason.elsewhere)} at the others."
            classes = self.advice.evidence.classes
            name = classes[reason.label] if reason.label < len(classes) else str(reason.label)
            there = range_of([100 * share for share in shares], "{:.0f}".format)
            return (
                f"Labels: class {name} is {there} % of the records of {who}, and {100 * reason.elsewhere:.0f} % "
                "elsewhere."
            )
        count = len(self.advice.finding.groups)
        where, whose = (f"at {who}", "the other group's")
        if count > 2:
            where, whose = (f"in the {count} groups", "the best other group's")
        text = f"Rule: the same inputs mean something else {where}"
        if reason.cross is not None:
            text += f": {whose} model has a loss of {reason.cross[0]:.3g} there, their own {reason.cross[1]:.3g}"
        return f"{text}."

    def _swapped(self) -> Iterator[str]:
        """Yield whose labels may be coded the other way round: of two classes one model then takes the wrong one."""
        together = self.advice.outcome("fedavg")
        if together is None or not any(len(own) == 2 for own in together.train.values()):
            return
        for group in self.advice.finding.groups:
            joined = joined_accuracy(together, group)
            if joined is not None and joined[0] + QUANTILE * math.sqrt(0.25 / joined[1]) < 0.5:
                yield (
                    f"One model for all is wrong on most records of {self.named(group)} ({100 * joined[0]:.1f} % "
                    "correct). The labels may be coded the other way round: compare the codes."
                )

    def _lone(self) -> Iterator[str]:
        """Yield how well the records of a few sites that fit nobody are predicted: as elsewhere, or not at all."""
        alone, criterion = self.advice.outcome("local"), self.advice.criterion
        # What another unit does is no rule.
        lone = [key for key in self.advice.finding.lone if key not in self._with_other_units]
        if alone is None or not 0 < len(lone) <= _MOST_ODD:
            return
        # The log loss depends on how frequent the classes are at a client, whatever a model does.
        between = replace(criterion, measure=criterion.seconds[0]) if criterion.seconds else criterion
        here = ", ".join(named(between.own(alone.test[key]), between.measure) for key in lone if key in alone.test)
        elsewhere = value(between.figure(alone.without(lone).test), between.measure)
        yield (
            f"No other site resembles {self.named(lone)}: {here} with its own model alone, {elsewhere} elsewhere. If "
            "its records are predicted as well as elsewhere, they have another rule (codes, patients): compare the "
            "definitions. If not, look for mistakes, such as labels that do not belong to their records."
        )

    def _gains(self) -> Iterator[str]:
        """Yield how the most telling other methods compare."""
        for name in ("fedavg", "intercept", "slopes", "discovery", "local"):
            gain = self.advice.against(name)
            if self.advice.chosen in (None, name) or gain is None or not math.isfinite(gain.mean):
                continue
            text = f"no clear difference ({amount(-gain.mean, gain.half, self.measure, sign=True)})"
            if abs(gain.mean) + gain.half < TRIFLE * unit_of(self.measure):
                text = "no difference"
            elif gain.is_gain:
                text = f"worse by {amount(gain.mean, gain.half, self.measure)}"
            elif gain.is_loss:
                better = amount(-gain.mean, gain.half, self.measure)
                text = f"better by {better} on the test records, but not clearly on the validation ones, which decide"
            yield f"{self.title(name)}: {text}."
        if diverged := self.advice.diverged:
            yield f"Not compared, because training diverged: {'; '.join(map(self.method, diverged))}."

    def _apart(self) -> Iterator[str]:
        """Yield the sites that enter no comparison."""
        one_class, out = self.advice.evidence.one_class, self.advice.evidence.left_out
        if out:
            yield f"Left out of every run: {self.named(out)}. `florets check` says why."
        if one_class:
            yield (
                f"Records of one class only: {self.named(one_class)}. Nothing there tells the classes apart: no part "
                "in comparisons or in the search for groups."
            )
