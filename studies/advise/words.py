"""Advice in plain words: the answer, why, and what would change it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from florets.reports.console import counted, duration, size
from florets.reports.pooled import PartStatistics
from florets.studies.advise.advice import Advice, SiteRow
from florets.studies.advise.causes import Reason
from florets.studies.advise.compare import (
    FEW_CLIENTS,
    FEW_RECORDS,
    TRIFLE,
    is_below,
    joined_accuracy,
    num_effective,
)
from florets.studies.advise.measures import (
    FORMS,
    OF_VALUES,
    Name,
    amount,
    capital,
    listed,
    named,
    p_words,
    plain,
    range_of,
    value,
)
from florets.studies.advise.measures import gain as gain_in
from florets.studies.advise.methods import METHODS, Question, command
from florets.studies.advise.outcomes import Kind, Outcome

_MOST_NAMES = 6
_MOST_COLUMNS = 3
_MOST_GROUPS = 5
_MOST_LISTED = 8
_NEAR = 0.05
"""A p value above the level and below this is near it."""

_AGREE = (
    "If the {site}s agreed on what sets them apart (codes, units, whom they record), one model could learn from all "
    "records."
)
_WITH_MORE = "With more {site}s, or more records per {site}, groups can be tested for."
VERDICTS: dict[Kind, tuple[str, str]] = {
    "groups": (" in {k} groups ({p})", _AGREE),
    "lone": (", no groups; no other {site} resembles {lone} ({p})", _AGREE),
    "none": (
        ", no groups ({p})",
        "Groups are claimed at p = 0.005 or less. More records per {site} would show smaller differences.",
    ),
    "all_differ": (", each different from all others ({p})", ""),
    "too_few": ("; groups cannot be tested for: too few records or {site}s", _WITH_MORE),
    "open": (
        "; groups were not tested for, because too few sent what the test needs",
        "With more rounds, or more {site}s per round, groups are tested for.",
    ),
    "moving": (
        "; groups were not tested for, because the common model was still improving",
        "With more rounds (num_rounds) groups are tested for.",
    ),
}
"""By the kind of finding: how the answer goes on after the number of sites, and what would change it, if anything."""


class Words:
    """Texts of one advice; `site` is what a client is called, and `rows` is the table of sites."""

    def __init__(self, advice: Advice, question: Question) -> None:
        self.advice, self.question = advice, question
        self.site = "site" if question.is_own else "client"
        self.measure = advice.criterion.measure
        self.is_regression = self.measure in OF_VALUES
        self.alternative = "fedavg" if advice.chosen == "local" else "local"
        self.other = "one model for all" if advice.chosen == "local" else "its own model alone"

    @cached_property
    def rows(self) -> list[SiteRow]:
        """A row for each client that has a result by any method, sorted by key."""
        outcomes = self.advice.outcomes
        return [self._row(key, outcomes) for key in sorted({key for one in outcomes for key in one.test})]

    def _row(self, key: str, outcomes: Sequence[Outcome]) -> SiteRow:
        advice, criterion = self.advice, self.advice.criterion
        groups = advice.finding.groups if len(advice.finding.groups) > 1 else ()
        others = (
            None if name in advice.unfit else advice.outcome(name) for name in (self.alternative, "local", "fedavg")
        )
        chosen, other, alone, together = (
            None if one is None else one.test.get(key) for one in (advice.best, *others)
        )
        gain = (math.nan, math.nan, math.nan)
        is_one_class = key in advice.evidence.one_class
        if chosen is not None and other is not None and not is_one_class:
            gain = criterion.gain_of(chosen, other)

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
            figure(chosen),
            figure(alone),
            figure(together),
            *gain,
            "one class only" if is_one_class else "few records" if key in advice.few else "",
        )

    @property
    def p(self) -> str:
        """The p value of the search for groups, in words, and how far those of two halves of the records agree."""
        finding = self.advice.finding
        stable = "" if finding.stability is None else f", stability {finding.stability:.2f}"
        return p_words(finding.p_value) + stable

    @property
    def verdict(self) -> tuple[str, str]:
        """The finding in words, and what would change it."""
        finding = self.advice.finding
        known = {"site": self.site, "k": len(finding.groups), "lone": self.named(finding.lone), "p": self.p}
        ending, change = (text.format(**known) for text in VERDICTS[finding.kind])
        return self.sites(finding.num_clients) + ending, change

    def method(self, name: str) -> str:
        """Return a method's name within a sentence."""
        return METHODS[name].text.format(site=self.site)

    def title(self, name: str) -> str:
        """Return a method's name at the beginning of a row or a sentence."""
        return capital(self.method(name))

    @property
    def answer(self) -> str:
        """The answer in one line."""
        finding = self.verdict[0]
        if self.advice.chosen is None:
            return f"Nothing to advise yet: no method is better than the constant answer beyond chance. {finding}."
        if apart := self._apart_by:
            kind = self.advice.finding.kind
            none = f", no groups ({self.p})" if kind == "none" else ""
            finding = f"{self.sites(self.advice.finding.num_clients)} that differ {apart}{none}"
        units = self._with_other_units
        asked_again = f", until the unit at {self.named(units)} is declared: then ask again" if units else ""
        return f"{finding}: {self.method(self.advice.best.name)}{asked_again}."

    @property
    def _apart_by(self) -> str:
        """By what clients differ where what is advised says so, and it is better than one model for all."""
        ways = {"intercept": "by level", "slopes": "in their coefficients"}
        gain = self.advice.over_common
        return ways.get(self.advice.chosen or "", "") if gain is not None and gain.is_gain else ""

    @property
    def _with_other_units(self) -> list[str]:
        return sorted({key for one in self.advice.evidence.reasons if one.kind == "unit" for key in one.sites})

    @property
    def changes(self) -> list[str]:
        """What would change the answer."""
        advice, texts = self.advice, []
        finding = advice.finding
        if (second := advice.runner_up) is not None and math.isfinite(second[1].half):
            other, gain = second
            difference = amount(-gain.mean, gain.half, self.measure, sign=True)
            texts.append(
                f"On the validation records, which decide, the next best is {self.method(other.name)} "
                f"({difference}). It would be advised if it were better by more than chance."
            )
        if advice.own_is_low and advice.own_is_low == finding.lone:
            texts.append(f"Ask again once the records of {self.named(finding.lone)} are corrected.")
        elif finding.kind == "none" and finding.p_value is not None and finding.p_value < _NEAR:
            near = f"Groups are claimed at p = 0.005 or less. {self.p} is near"
            texts.append(f"{near}: look again with more records per {self.site}.")
        elif change := self.verdict[1]:
            texts.append(change)
        return [*texts, f"A new {self.site} changes the answer if it differs from these: ask again."]

    @property
    def interval(self) -> str:
        """What the intervals are over, and which direction is better."""
        tests, form = self.advice.judged(self.advice.best).test, FORMS[self.measure]
        better = f"{capital(form.title)} over all records; {'higher' if form.higher else 'lower'} is better."
        points = " Points are percentage points." if form.percent else ""
        over = f"over {self.site}s like these"
        if num_effective(tests) < FEW_CLIENTS:
            these = self.sites(len(tests))
            over = f"for these {these}, from their test records; it says nothing about other {self.site}s"
        return f"{better}{points} ± is a 95 % interval {over}."

    @property
    def command(self) -> str:
        """The command that uses the advised method."""
        best = self.advice.best
        return command(self.question, best.name, self.advice.finding, best.rate, best.rounds)

    @property
    def short(self) -> str:
        """The answer for the screen."""
        best, lines = self.advice.best, [self.answer, *self.reasons]
        if len(self.paragraphs) <= _MOST_LISTED:
            lines += [f"  {text}" for text in self.paragraphs]
        lines.append(self.interval)
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

    @cached_property
    def paragraphs(self) -> list[str]:
        """The sites where the advised method gains or loses by more than chance."""
        texts: list[str] = []
        for row in self.rows if self.advice.chosen else ():
            text = f"the advised method gains over {self.other}" if row.is_gain else f"{self.other} would be better"
            matters = abs(row.gain) >= 10 * TRIFLE * abs(gain_in(1.0, 0.0, self.measure))
            if (row.is_gain or row.is_loss) and matters and not row.note:
                texts.append(f"{row.name}: {text} here ({self.interval_of(row)}).")
        return texts

    def _needs_own_model(self, key: str) -> bool:
        """Return whether one model for all predicts a client worse than its own, by more than chance.

        Of measures without an upper end, and without figures for the client, the search for groups is believed.
        """
        alone, together = (one and one.test.get(key) for one in map(self.advice.outcome, ("local", "fedavg")))
        low = self.advice.criterion.gain_of(alone, together)[1] if alone and together else math.nan
        return math.isnan(low) or low > 0

    def interval_of(self, row: SiteRow) -> str:
        """Return a site's gain with its interval."""
        if math.isnan(row.gain):
            return "-"
        ends = (amount(end, math.inf, self.measure, sign=True) for end in (row.gain, row.low, row.high))
        if math.isnan(row.low):
            return next(ends)
        mean, low, high = (text.removesuffix(" points") for text in ends)
        if "or more" in mean:
            return mean
        return f"{mean} ({low} to {high})"

    @property
    def reasons(self) -> list[str]:
        """What the answer stands on, in a few sentences, the most important first."""
        first = self._useless() if self.advice.chosen is None else self._figures()
        parts = (first, self._groups(), self._differences(), self._lone(), self._gains(), self._apart())
        return [text for part in parts for text in part]

    def _useless(self) -> Iterator[str]:
        """Yield that nothing was learned, and what to do about it."""
        advice, criterion = self.advice, self.advice.criterion
        best, constant = criterion.figure(advice.judged(advice.best).test), advice.constant.figure(criterion)
        name = self.method(advice.best.name)
        if math.isinf(best) or any(math.isinf(criterion.own(test)) for test in advice.best.test.values()):
            yield f"Training diverged, even with the best method: {name}."
        else:
            figures = f"{named(best, self.measure)}; the constant answer reaches {value(constant, self.measure)}"
            gain = advice.over_constant
            if gain.mean > 0 and math.isfinite(gain.half):
                chance = "may be chance on the validation records, which decide" if gain.is_gain else "may be chance"
                figures += f". The difference {chance} ({amount(gain.mean, gain.half, self.measure, sign=True)})"
            yield f"On the test records the best method, {name}, reaches {figures}."
        yield (
            "Check that the inputs can predict the target, that units and codes agree (`florets check`), and that "
            "there are enough records; then try other inputs or another model (task.model)."
        )

    def _figures(self) -> Iterator[str]:
        """Yield what is expected, and how figures are taken."""
        advice, criterion = self.advice, self.advice.criterion
        own = criterion.figure(advice.judged(advice.best).test), advice.constant.figure(criterion)
        figures = [self._against_constant(self.measure, *own)]
        for name in criterion.seconds:
            figure = replace(criterion, measure=name).figure(advice.judged(advice.best).test)
            if math.isfinite(figure):
                figures.append(self._against_constant(name, figure, advice.constant.seconds.get(name, math.nan)))
        yield f"Expected on new records: {', '.join(figures)}."
        if seen := advice.least_seen:
            records = sum(test.n for test in advice.judged(advice.best).validation.values())
            smallest = amount(seen, math.inf, self.measure)
            yield (
                f"Methods are compared on {counted(records, 'validation record')}: differences below about "
                f"{smallest} in {FORMS[self.measure].title} cannot be seen here."
            )

    @staticmethod
    def _against_constant(measure: Name, figure: float, constant: float) -> str:
        known = f" (constant answer: {value(constant, measure)})" if math.isfinite(constant) else ""
        return f"{named(figure, measure)}{known}"

    def _groups(self) -> Iterator[str]:
        finding = self.advice.finding
        if finding.kind == "none" and finding.p_value is not None:
            often = max(1, round(100 * finding.p_value))
            yield (
                f"The updates of {self.site}s without groups would look as different as these in {often} of 100 "
                "cases."
            )
        if finding.kind != "groups":
            return
        if len(finding.groups) <= _MOST_GROUPS:
            yield f"The groups: {self.listed_groups}."
        if self.advice.chosen == "fedavg":
            yield "One model serves them as well as one per group does."
        elif self.advice.chosen in ("intercept", "slopes"):
            what = "An intercept" if self.advice.chosen == "intercept" else "A set of coefficients"
            groups = f"the {len(finding.groups)} groups that were detected ({self.p})"
            if gain := self.advice.against("discovery"):
                more = "explains more than" if gain.is_gain else "serves as well as a model for each of"
                yield f"{what} per {self.site} {more} {groups}."

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
        many, count = len(reason.sites) > _MOST_LISTED, len(self.advice.finding.groups)
        who = self.sites(len(reason.sites)) if many else self.named(reason.sites)
        columns = ", ".join(one.text(reason.kind) for one in reason.columns[:_MOST_COLUMNS])
        if reason.kind == "unit" and reason.factor is not None:
            times = f"{reason.factor:.2g} times" if reason.factor > 1 else f"1/{1 / reason.factor:.2g} of"
            return (
                f"Inputs: all columns of {who} are about {times} those of the other {self.site}s, as with another "
                "unit. Declare the unit (scale in node.toml); the rule may be the same."
            )
        if reason.kind == "unit":
            remedy = "`florets check` names the factor to declare."
            return f"Inputs: at {who} another unit seems to be used for {columns}. {remedy}"
        if reason.kind == "inputs":
            # Where most depart they differ among one another: no column sets all of them apart from the rest.
            most = 2 * len(reason.sites) > self.advice.finding.num_clients
            what = "from one another" if most else f"from those of the other {self.site}s"
            return f"Inputs: the distributions at {who} differ {what}, most of all in {columns}."
        shares = sorted(reason.shares.values())
        if reason.kind == "labels" and self.is_regression:
            elsewhere = plain(reason.elsewhere)
            return f"Target: its mean is {range_of(shares, plain)} at {who}, and {elsewhere} at the others."
        if reason.kind == "labels":
            classes = self.advice.evidence.classes
            name = classes[reason.label] if reason.label < len(classes) else str(reason.label)
            there = range_of([100 * share for share in shares], "{:.0f}".format)
            text = f"Labels: class {name} is {there} % of the records of {who}, and {100 * reason.elsewhere:.0f} %"
            kinds = {one.kind for one in self.advice.evidence.reasons}
            explained = "" if kinds & {"inputs", "unit"} else " The inputs differ no more than these shares explain."
            return f"{text} elsewhere.{explained}"
        where, whose = (
            (f"in the {count} groups", "the best other group's") if count > 2 else (f"at {who}", "the other group's")
        )
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
            if joined is not None and is_below(*joined, 0.5):
                yield (
                    f"One model for all is wrong on most records of {self.named(group)} ({100 * joined[0]:.1f} % "
                    "correct). The labels may be coded the other way round: compare the codes."
                )

    def _lone(self) -> Iterator[str]:
        """Yield what sites that fit nobody may have, one sentence for those of one kind."""
        advice, alone = self.advice, self.advice.outcome("local")
        if advice.finding.kind not in ("groups", "lone", "all_differ"):
            return
        if bad := advice.own_is_low:
            figures = ""
            if alone is not None:
                between = replace(advice.criterion, measure=advice.criterion.between_clients)
                others = value(between.figure(advice.judged(alone).test), between.measure)
                figures = f" ({self._figures_at(alone, bad)} alone, {others} elsewhere)"
            yield (
                f"No model predicts the records of {self.named(bad)}, not even one trained there{figures}. Look for "
                "mistakes, such as labels that do not belong to their records. Figures are of the other "
                f"{self.site}s."
            )
        if self._apart_by:
            # Each client has a level or coefficients that suit it.
            return
        # What another unit does is no rule.
        lone = [key for key in advice.finding.lone if key not in (*bad, *self._with_other_units)]
        if apart := [key for key in lone if self._needs_own_model(key)]:
            yield (
                f"A different rule from the other sites: {self.named(apart)}. Other codes, other patients, or "
                "mistakes in the records: compare the definitions; until then a separate model is the way."
            )
        if served := [key for key in lone if key not in apart]:
            yield (
                f"Predicted by one model for all as well as by a model trained there alone: {self.named(served)}, "
                "although its updates point elsewhere; no different rule was detected."
            )

    def _figures_at(self, outcome: Outcome, keys: Sequence[str]) -> str:
        tests, measure = outcome.test, self.advice.criterion.between_clients
        own = replace(self.advice.criterion, measure=measure).own
        return ", ".join(value(own(tests[key]), measure) for key in keys if key in tests)

    def _gains(self) -> Iterator[str]:
        """Yield how the most telling other methods compare."""
        for name in ("fedavg", "intercept", "slopes", "discovery", "local"):
            gain = self.advice.against(name)
            if self.advice.chosen in (None, name) or gain is None or not math.isfinite(gain.mean):
                continue
            text = f"no clear difference ({amount(-gain.mean, gain.half, self.measure, sign=True)})"
            if abs(gain.mean) + gain.half < TRIFLE * abs(gain_in(1.0, 0.0, self.measure)):
                text = "no difference"
            elif gain.is_gain:
                text = f"worse by {amount(gain.mean, gain.half, self.measure)}"
            elif gain.is_loss:
                better = amount(-gain.mean, gain.half, self.measure)
                text = f"better by {better} on the test records, but not clearly on the validation ones, which decide"
            yield f"{self.title(name)}: {text}."
        for reason in dict.fromkeys(self.advice.unfit.values()):
            names = [self.method(name) for name, own in self.advice.unfit.items() if own == reason]
            yield f"Not compared, because {reason}: {'; '.join(names)}."

    def _apart(self) -> Iterator[str]:
        """Yield the sites that enter no comparison, and those that the advised model serves badly."""
        advice = self.advice
        if one := advice.evidence.one_class:
            yield (
                f"Records of one class only: {self.named(one)}. Nothing there tells the classes apart: no part in "
                "comparisons or in the search for groups."
            )
        few = [key for key in advice.few if key not in one]
        if few and len(few) < len(self.rows):
            who = self.sites(len(few)) if len(few) > _MOST_LISTED else self.named(few)
            yield (
                f"Fewer than {FEW_RECORDS} test records: {who}. Their own figures are mostly noise; methods are "
                "compared over all records together."
            )
        low = [key for key in advice.low if key not in (*advice.finding.lone, *one, *few)]
        if low and advice.chosen is not None:
            figures = self._figures_at(advice.best, low)
            yield f"{self.named(low)}: the advised model does worse here than elsewhere ({figures})."
