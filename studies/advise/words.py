"""Advice in plain words: the answer, why, and what would change it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from florets.reports.console import counted, duration, size
from florets.studies.advise.advice import Advice
from florets.studies.advise.causes import ColumnShift, Reason
from florets.studies.advise.compare import FEW_CLIENTS, FEW_RECORDS, Difference, is_below, joined_accuracy, low_sites
from florets.studies.advise.measures import FORMS, OF_VALUES, amount, named, value
from florets.studies.advise.methods import NAMES, Question, Setup, command
from florets.studies.advise.outcomes import Outcome


@dataclass(frozen=True)
class SiteRow:
    """One site.

    Attributes
    ----------
    key, name
        As in the runs' files, and as it is called.
    group
        Number of its group, from 1; None where there are none.
    train, test
        Records that it trains on and validates with, and that it tests on.
    advised, alone, one_model
        Its figure under the advised method, its own model alone, and one model for all; NaN where it has none.
    gain, low, high
        What the advised method gains over the alternative, with its 95 % interval by the site's own test records; NaN
        where it is not known.
    note
        Why the site enters no comparison between sites; empty for most.
    """

    key: str
    name: str
    group: int | None
    train: int
    test: int
    advised: float
    alone: float
    one_model: float
    gain: float
    low: float
    high: float
    note: str = ""

    @property
    def is_gain(self) -> bool:
        """Whether the advised method is better here by more than chance."""
        return self.low > 0

    @property
    def is_loss(self) -> bool:
        """Whether it is worse by more than chance."""
        return self.high < 0


def alternative(advice: Advice) -> str:
    """Return the method that the sites' gains are over: each alone, or one model for all where alone is advised."""
    return "fedavg" if advice.chosen == "local" else "local"


def site_rows(advice: Advice) -> list[SiteRow]:
    """Return a row for each client that has a result by any method, sorted by key."""
    group_of = {key: number + 1 for number, group in enumerate(advice.finding.groups) for key in group}
    several = len(advice.finding.groups) > 1
    chosen, other = advice.best, advice.outcome(alternative(advice))
    rows = []
    for key in sorted({key for one in advice.outcomes for key in one.test}):
        own = chosen.test.get(key)
        compared = None if other is None else other.test.get(key)
        gain = (math.nan, math.nan, math.nan)
        note = _note(advice, key)
        if own is not None and compared is not None and key not in advice.evidence.one_class:
            gain = advice.criterion.gain_of(own, compared)
        tests = [one.test[key].n for one in advice.outcomes if key in one.test]
        counts = next((one.train[key] for one in advice.outcomes if key in one.train), None)
        rows.append(
            SiteRow(
                key=key,
                name=advice.name(key),
                group=group_of.get(key) if several else None,
                train=0 if counts is None else int(counts.sum()) if _is_classes(advice) else int(counts[0]),
                test=max(tests, default=0),
                advised=_figure(advice, chosen, key),
                alone=_figure(advice, advice.outcome("local"), key),
                one_model=_figure(advice, advice.outcome("fedavg"), key),
                gain=gain[0],
                low=gain[1],
                high=gain[2],
                note=note,
            )
        )
    return rows


def _is_classes(advice: Advice) -> bool:
    return advice.criterion.measure not in ("r2", "mae", "rmse")


def _figure(advice: Advice, outcome: Outcome | None, key: str) -> float:
    test = None if outcome is None else outcome.test.get(key)
    return math.nan if test is None else advice.criterion.own(test)


def _note(advice: Advice, key: str) -> str:
    if key in advice.evidence.one_class:
        return "one class only"
    if key in advice.few:
        return "few records"
    return ""


_MOST_NAMES = 6
_MOST_COLUMNS = 3
_MOST_GROUPS = 5
_MOST_LISTED = 8
_NEAR = 0.05
"""A p value above the level and below this is near it."""

SHORT = {
    "fedavg": "one model for all (FedAvg)",
    "standardised": "one model for all, each {site} standardising its own inputs (FedAvg)",
    "intercept": "one model with an intercept per {site} (FedAvg, personal=intercept)",
    "discovery": "one model per group (strategy=discovery)",
    "group_intercept": "one model per group, with an intercept per {site} (strategy=discovery, personal=intercept)",
    "tuned": "one model for all, fine-tuned by each {site} (FedAvg with fine-tuning)",
    "two_groups": "two groups, with a model each (strategy=discovery k=2)",
    "clove": "one model per group (strategy=clove)",
    "local": "no federation: each {site} trains its own model",
}


class Words:
    """Texts of one advice; `site` is what a client is called, and `rows` is the table of sites."""

    def __init__(self, advice: Advice, question: Question, setup: Setup) -> None:
        self.advice, self.question, self.setup = advice, question, setup
        self.site = "site" if question.is_own else "client"
        self.measure = advice.criterion.measure
        self.rows = site_rows(advice)

    @property
    def use(self) -> str:
        """What to use, without a verb."""
        return SHORT[self.advice.best.name].format(site=self.site)

    @property
    def found(self) -> str:
        """What was found of groups, without a verb."""
        finding, lone = self.advice.finding, self.named(self.advice.finding.lone)
        count, p = self.sites(finding.num_clients), p_text(finding.p_value)
        if self.advice.is_scale:
            return f"{count} that differ only in the scale of their inputs"
        if finding.kind == "none":
            return f"{count}, no groups ({p})"
        if finding.kind == "too_few":
            return f"{count}; groups cannot be tested for: too few records or {self.site}s"
        if finding.kind == "open":
            return f"{count}; groups were not tested for, because too few sent what the test needs"
        if finding.kind == "moving":
            return f"{count}; groups were not tested for, because the common model was still improving"
        if finding.kind == "all_differ":
            return f"{count}, each different from all others ({p})"
        if finding.kind == "lone":
            fits = "fits" if len(finding.lone) == 1 else "fit"
            return f"{count}, no groups; {lone} {fits} no other {self.site} ({p})"
        return f"{count} in {len(finding.groups)} groups ({p})"

    @property
    def answer(self) -> str:
        """The answer in one line."""
        if self.advice.chosen is None:
            return f"Nothing to advise yet: no method is better than the constant answer. {self.found}."
        return f"{self.found}: {self.use}."

    @property
    def changes(self) -> list[str]:
        """What would change the answer."""
        advice, said = self.advice, []
        finding = advice.finding
        if (second := advice.runner_up) is not None and math.isfinite(second[1].half):
            other, gain = second
            title = NAMES[other.name].format(site=self.site)
            there = amount(-gain.mean, gain.half, self.measure, sign=True)
            said.append(
                f"On the validation records, by which the method was chosen, the next best is {title} ({there}). It "
                "would be advised if it were better by more than chance."
            )
        if finding.p_value is not None and finding.kind == "none":
            near = finding.p_value < _NEAR
            said.append(
                "Groups are claimed at p = 0.005 or less. "
                + (
                    f"{p_text(finding.p_value)} is near: look again with more records per {self.site}."
                    if near
                    else f"More records per {self.site} would show smaller differences, which matter less."
                )
            )
        if finding.kind == "too_few":
            said.append(f"With more {self.site}s, or more records per {self.site}, groups can be tested for.")
        if finding.kind == "open":
            said.append(f"With more rounds, or more {self.site}s per round, groups are tested for.")
        if finding.kind == "moving":
            said.append("With more rounds (num_rounds) groups are tested for.")
        if finding.kind in ("groups", "lone") and not advice.is_scale:
            if advice.own_is_low and advice.own_is_low == finding.lone:
                said.append(f"Ask again once the records of {self.named(finding.lone)} are corrected.")
            else:
                said.append(
                    f"If the {self.site}s agreed on what sets them apart (codes, units, whom they record), one model "
                    "could learn from all records."
                )
        if advice.is_scale:
            said.append(
                f"If a {self.site}'s level means something (more severe cases), standardising hides it: compare both."
            )
        return [*said, f"A new {self.site} changes the answer if it differs from these: ask again."]

    @property
    def interval(self) -> str:
        """What the intervals are over, and which direction is better."""
        count = len(self.advice.judged(self.advice.best).test)
        form = FORMS[self.measure]
        better = f"{form.title[0].upper()}{form.title[1:]}: {'higher' if form.higher else 'lower'} is better."
        points = " Points are percentage points." if form.percent else ""
        if count < FEW_CLIENTS:
            return (
                f"{better}{points} ± is a 95 % interval for these {self.sites(count)}, from their test "
                f"records; it says nothing about other {self.site}s."
            )
        return f"{better}{points} ± is a 95 % interval over {self.site}s like these."

    @property
    def cost(self) -> str:
        """What the advised method took, all clients together."""
        best = self.advice.best
        return (
            f"{size(best.num_bytes)} sent and received by all {self.site}s in {counted(best.rounds, 'round')}, "
            f"{duration(best.seconds)} in this trial."
        )

    @property
    def command(self) -> str:
        """The command that uses the advised method."""
        best = self.advice.best
        return command(self.question, best.name, self.advice.finding, self.setup, best.rate, best.rounds)

    @property
    def short(self) -> str:
        """The answer for the screen."""
        lines = [self.answer, *self.reasons]
        paragraphs = self.paragraphs
        if paragraphs and len(paragraphs) <= _MOST_LISTED:
            lines += [f"  {text}" for text in paragraphs]
        lines.append(self.interval)
        if self.advice.chosen is not None:
            lines += [f"Cost: {self.cost}", f"Use: {self.command}"]
        return "\n".join(lines)

    @property
    def is_regression(self) -> bool:
        """Whether the targets are values."""
        return self.measure in OF_VALUES

    def sites(self, number: int) -> str:
        """Return a number of sites (clients, in a simulation)."""
        return counted(number, self.site)

    def named(self, keys: Sequence[str]) -> str:
        """Return names of clients; numbers are called what they are of."""
        names = [self.advice.name(key) for key in keys]
        plain = not any(name.isdecimal() for name in names)
        return listed(names) if plain else f"{self.site}{'' if len(names) == 1 else 's'} {listed(names)}"

    def of_sites(self, outcome: Outcome, keys: Sequence[str]) -> str:
        """Return a method's figures at some clients."""
        tests = outcome.test
        return ", ".join(value(self.advice.criterion.own(tests[key]), self.measure) for key in keys if key in tests)

    def needs_own_rule(self, key: str) -> bool:
        """Return whether one model for all predicts a client worse than its own, by more than chance.

        Of measures without an upper end, and without figures for the client, the search for groups is believed.
        """
        together, alone = self.advice.outcome("fedavg"), self.advice.outcome("local")
        if together is None or alone is None or key not in together.test or key not in alone.test:
            return True
        _, low, _ = self.advice.criterion.gain_of(alone.test[key], together.test[key])
        return math.isnan(low) or low > 0

    @property
    def paragraphs(self) -> list[str]:
        """One paragraph per site that departs, with its one explanation."""
        return [text for row in self.rows if (text := self._paragraph(row))]

    def _paragraph(self, row: SiteRow) -> str:
        advice = self.advice
        said = []
        if row.key in advice.evidence.one_class:
            said.append(f"{row.note}; no comparison with other {self.site}s")
        elif row.note:
            return ""
        elif row.key in advice.own_is_low:
            said.append("no model predicts its records; look for mistakes there")
        elif advice.is_scale and row.key in departing(advice):
            said.append(
                f"its inputs have another scale; nothing else sets it apart once each {self.site} standardises"
            )
        elif row.key in advice.finding.lone and self.needs_own_rule(row.key):
            said.append("it follows another rule than all others")
        kinds = {one.kind: one for one in advice.evidence.reasons if row.key in one.sites}
        if not row.note and not said and "rule" in kinds:
            said.append("the same inputs mean something else here than in the larger group")
        if not said:
            if "unit" in kinds:
                said.append("its inputs seem to be in another unit")
            if "inputs" in kinds:
                said.append("its inputs are distributed otherwise")
            if "labels" in kinds and row.key in kinds["labels"].shares:
                said.append(
                    "its classes have other shares" if not self.is_regression else "its target has another level"
                )
        other = "its own model alone" if alternative(advice) == "local" else "one model for all"
        if row.is_gain:
            said.append(f"the advised method gains over {other} here ({self.interval_of(row)})")
        elif row.is_loss:
            said.append(f"{other} would be better here ({self.interval_of(row)})")
        return f"{row.name}: {'; '.join(said)}." if said else ""

    def interval_of(self, row: SiteRow) -> str:
        """Return a site's gain with its interval."""
        if math.isnan(row.gain):
            return "-"
        if math.isnan(row.low):
            return amount(row.gain, math.inf, self.measure, sign=True)
        low, high = (
            amount(end, math.inf, self.measure, sign=True).removesuffix(" points") for end in (row.low, row.high)
        )
        return f"{amount(row.gain, math.inf, self.measure, sign=True).removesuffix(' points')} ({low} to {high})"

    @property
    def reasons(self) -> list[str]:
        """What the answer stands on, in a few sentences, the most important first."""
        useless = self._useless() if self.advice.chosen is None else []
        return [
            *useless,
            *self._figures(),
            *self._chance(),
            *self._groups(),
            *self._differences(),
            *self._lone(),
            *self._gain(),
            *self._apart(),
            *self._low(),
        ]

    def _useless(self) -> list[str]:
        """Say that nothing was learned, and what to do about it."""
        advice = self.advice
        criterion = advice.criterion
        best, constant = criterion.figure(advice.judged(advice.best).test), advice.constant.figure(criterion)
        name = NAMES[advice.best.name].format(site=self.site)
        if math.isinf(best) or any(math.isinf(criterion.own(test)) for test in advice.best.test.values()):
            said = [f"Training diverged, also with the best method ({name})."]
        else:
            said = [
                f"The best method ({name}) reaches {named(best, self.measure)} on the test records; the constant "
                f"answer reaches {value(constant, self.measure)}."
            ]
        if advice.evidence.tried:
            said.append(f"Also tried, without success: {', '.join(advice.evidence.tried)}.")
        if advice.evidence.unscaled:
            said.append(
                "The inputs are far from a standard scale: standardise them, by the same numbers at all "
                f"{self.site}s, or give data frames or tables, which are standardised, and images as uint8."
            )
        return [
            *said,
            "Check that the inputs can predict the target, that units and codes agree (`florets check`), and that "
            "there are enough records; then try other inputs or another model (task.model).",
        ]

    def _figures(self) -> list[str]:
        """Say what is expected, and how figures are taken."""
        advice, criterion = self.advice, self.advice.criterion
        if advice.chosen is None:
            return []
        tests = advice.judged(advice.best).test
        constant = advice.constant.figure(criterion)
        versus = f"; the constant answer reaches {value(constant, self.measure)}" if math.isfinite(constant) else ""
        over = "over all records together" if criterion.together else f"mean over {self.site}s"
        said = [f"Expected on new records: {named(criterion.figure(tests), self.measure)} ({over}){versus}."]
        if advice.evidence.tried:
            said.append(
                f"Nothing was better than the constant answer at first; what helped: {advice.evidence.tried[-1]}."
            )
        if criterion.together:
            said.append(
                f"Most {self.site}s have fewer than {FEW_RECORDS} test records, too few for "
                f"{FORMS[self.measure].title} per {self.site}: it is taken over all records together."
            )
        if "train.class_weights=balanced" in self.setup.keys:
            said.append(
                "One class is rare: training weights the classes equally, and methods are compared by AUC."
                if self.measure == "auc"
                else "One class is rare: training weights the classes equally."
            )
        return said

    def _chance(self) -> list[str]:
        """Say in words what p value speaks against groups; small ones need no words."""
        finding = self.advice.finding
        if finding.kind != "none" or finding.p_value is None:
            return []
        often = max(1, round(100 * finding.p_value))
        who = self.site.capitalize()
        return [f"{who}s without any difference would look as different as these in {often} of 100 cases."]

    def _groups(self) -> list[str]:
        finding = self.advice.finding
        if finding.kind != "groups" or self.advice.is_scale:
            return []
        found = [self.named(group) for group in finding.groups]
        said = []
        if len(found) <= _MOST_GROUPS:
            said.append(f"The groups: {' | '.join(found)}.")
        if self.advice.chosen == "fedavg":
            said.append("One model serves them as well as one per group does.")
        elif self.advice.chosen == "intercept":
            said.append(f"An intercept per {self.site} says more than the groups do.")
        return said

    def _differences(self) -> list[str]:
        """Say in which respects sites differ, one explanation for each: standardising first, then groups."""
        advice = self.advice
        said = []
        after = advice.evidence.standardised
        if advice.is_scale and after is not None:
            who = self.named(departing(advice))
            said.append(
                f"What sets {who} apart is the scale of the inputs: once each {self.site} standardises its own "
                f"inputs the difference is gone ({p_text(after.p_value)}). Look for other units "
                "or instruments, and declare them (scale in node.toml)."
            )
        for reason in advice.evidence.reasons:
            said += self._reason(reason)
        if (
            not advice.is_scale
            and after is not None
            and after.p_value is not None
            and advice.finding.kind == "groups"
        ):
            said.append(f"Standardising the inputs per {self.site} does not remove the groups.")
        return said

    def _reason(self, reason: Reason) -> list[str]:
        who = self.named(reason.sites)
        their = "its" if len(reason.sites) == 1 else "their"
        have = "has" if len(reason.sites) == 1 else "have"
        many = len(reason.sites) > _MOST_LISTED
        if reason.kind == "unit" and reason.factor is not None:
            return [
                f"Inputs: all columns of {who} are {times(reason.factor)} those of the other {self.site}s, as "
                "with another unit. Declare the unit (scale in node.toml); the rule may be the same."
            ]
        if reason.kind == "unit":
            columns = ", ".join(
                f"{one.column} (x {one.factor:.3g})" for one in reason.columns[:_MOST_COLUMNS] if one.factor
            )
            return [f"Inputs: {who} {have} {columns} in another unit, it seems. Declare it (scale in node.toml)."]
        if reason.kind == "inputs":
            columns = ", ".join(shift_of(one) for one in reason.columns[:_MOST_COLUMNS])
            whom = f"{len(reason.sites)} {self.site}s have" if many else f"{who} {have}"
            if 2 * len(reason.sites) > self.advice.finding.num_clients:
                # They differ among one another: no column sets all of them apart from the rest.
                return [f"Inputs: {whom} a distribution of their own each, most of all in {columns}."]
            return [f"Inputs: {whom} another distribution than the other {self.site}s, most of all in {columns}."]
        if reason.kind == "labels":
            return [self._label_reason(reason, who, their, many)]
        several = len(self.advice.finding.groups) > 2
        where = f"in the {len(self.advice.finding.groups)} groups" if several else f"at {who}"
        said = f"Rule: the same inputs mean something else {where}"
        if reason.cross is not None:
            other, own = reason.cross
            whose = "the best model of another group" if several else "the other group's model"
            said += f": {whose} has a loss of {other:.3g} there, {their} own {own:.3g}"
        return [f"{said}.", *self._swapped()]

    def _class(self, label: int | None) -> str:
        names = self.advice.evidence.classes
        return names[label] if label is not None and label < len(names) else str(label)

    def _label_reason(self, reason: Reason, who: str, their: str, many: bool) -> str:
        values = sorted(reason.shares.values())
        if self.is_regression:
            shown = range_of(values, "{:.3g}")
            where = f"{len(values)} {self.site}s" if many else who
            return f"Target: its mean at {where} is {shown}, and {reason.elsewhere:.3g} at the others."
        shown = range_of([100 * share for share in values], "{:.0f}")
        where = f"{len(values)} {self.site}s" if many else who
        said = (
            f"Labels: class {self._class(reason.label)} is {shown} % of the records of {where}, and "
            f"{100 * reason.elsewhere:.0f} % elsewhere."
        )
        kinds = {one.kind for one in self.advice.evidence.reasons}
        if kinds & {"inputs", "unit"}:
            return said
        return f"{said} {their.capitalize()} inputs differ no more than these shares explain."

    def _swapped(self) -> list[str]:
        """Say whose labels may be coded the other way round: of two classes one model then takes the wrong one."""
        advice, together = self.advice, self.advice.outcome("fedavg")
        counts = [own for own in (together.train.values() if together else ()) if len(own) == 2]
        if together is None or not counts:
            return []
        said = []
        for group in advice.finding.groups:
            joined = joined_accuracy(together, group)
            if joined is not None and is_below(*joined, 0.5):
                said.append(
                    f"One model for all is wrong on most records of {self.named(group)} "
                    f"({100 * joined[0]:.1f} % correct). This is how labels look that are coded the other way "
                    "round: compare the codes."
                )
        return said

    def _lone(self) -> list[str]:
        advice = self.advice
        if advice.finding.kind not in ("groups", "lone", "all_differ") or advice.is_scale:
            return []
        said = []
        bad = advice.own_is_low
        good = [key for key in advice.finding.lone if key not in bad]
        alone = advice.outcome("local")
        if bad:
            own = "its own" if len(bad) == 1 else "their own"
            figures = ""
            if alone is not None:
                others = value(advice.criterion.figure(advice.judged(alone).test), self.measure)
                figures = f" ({self.of_sites(alone, bad)} alone, {others} elsewhere)"
            said.append(
                f"No model predicts the records of {self.named(bad)}, not even {own}{figures}. Look for "
                "mistakes there, such as labels that do not belong to their records. Figures are of the other "
                f"{self.site}s."
            )
        badly = [] if alone is None else low_sites(alone, advice.criterion)
        scarce = [key for key in good if key in badly]
        if scarce:
            said.append(
                f"{self.named(scarce)} {'differs' if len(scarce) == 1 else 'differ'} from the others, and a "
                "model trained there alone does badly; it takes more records to say why."
            )
        apart = [key for key in good if key not in scarce and self.needs_own_rule(key)]
        served = [key for key in good if key not in scarce and key not in apart]
        if apart:
            follows = "follows" if len(apart) == 1 else "follow"
            said.append(
                f"{self.named(apart)} {follows} another rule than the others: other codes, other patients, "
                "or mistakes in the records. Compare the definitions; until then a separate model is the way."
            )
        if served:
            their = "its" if len(served) == 1 else "their"
            said.append(
                f"{self.named(served)}: one model for all predicts {their} records as well as {their} own "
                "model does, although training there takes another direction. No rule of another kind was shown."
            )
        return said

    def _gain(self) -> list[str]:
        advice = self.advice
        if advice.chosen is None:
            return []
        shown = {
            "fedavg": "One model for all",
            "discovery": "One model per group",
            "two_groups": "Two groups regardless",
            "local": f"Each {self.site} alone",
            "standardised": "Standardised inputs",
        }
        if advice.finding.kind == "lone" and advice.own_is_low == advice.finding.lone:
            shown["discovery"] = f"Training without {self.named(advice.finding.lone)}"
        said = []
        for name, subject in shown.items():
            gain = advice.against(name)
            if name == advice.chosen or gain is None or not math.isfinite(gain.mean):
                continue
            said.append(f"{subject}: {self._compared(gain)}.")
        return said

    def _compared(self, gain: Difference) -> str:
        """Return how another method compares, given the chosen one's gain over it."""
        if gain.is_gain:
            return f"worse by {amount(gain.mean, gain.half, self.measure)}"
        if gain.is_loss:
            return f"better by {amount(-gain.mean, gain.half, self.measure)} on the test records"
        return f"no clear difference ({amount(-gain.mean, gain.half, self.measure, sign=True)})"

    def _apart(self) -> list[str]:
        """Name the sites that enter no comparison."""
        advice = self.advice
        said = []
        if one := advice.evidence.one_class:
            have = "has" if len(one) == 1 else "have"
            said.append(
                f"{self.named(one)} {have} records of one class only: nothing there tells the classes apart, "
                f"so {'it takes' if len(one) == 1 else 'they take'} no part in comparisons or the search for groups."
            )
        few = [key for key in advice.few if key not in advice.evidence.one_class]
        if few and len(few) < len(self.rows):
            have = "has" if len(few) == 1 else "have"
            who = f"{len(few)} {self.site}s" if len(few) > _MOST_LISTED else self.named(few)
            said.append(
                f"{who} {have} fewer than {FEW_RECORDS} test records; {'its' if len(few) == 1 else 'their'} own "
                "figures are mostly noise and enter no comparison."
            )
        return said

    def _low(self) -> list[str]:
        advice = self.advice
        low = [key for key in advice.low if key not in (*advice.finding.lone, *advice.criterion.apart)]
        if not low or advice.chosen is None:
            return []
        return [
            f"{self.named(low)}: the advised model does worse here than elsewhere, by more than chance "
            f"({self.of_sites(advice.best, low)})."
        ]


def departing(advice: Advice) -> list[str]:
    """Return the clients outside the largest group."""
    groups = advice.finding.groups
    if len(groups) < 2:
        return [key for group in groups for key in group]
    return sorted({key for group in groups[1:] for key in group} | set(advice.finding.lone))


def times(factor: float) -> str:
    """Return a factor in words."""
    return f"{factor:.2g} times" if factor > 1 else f"1/{1 / factor:.2g} of"


def shift_of(one: ColumnShift) -> str:
    """Return how a column departs, with its name."""
    name, equals, category = one.column.partition(" = ")
    if equals:
        return f"{name} ({category} is {'more' if one.shift > 0 else 'less'} frequent)"
    if abs(one.shift) < 0.2:
        return f"{name} (spread x {one.ratio:.2g})"
    return f"{name} (mean {one.shift:+.1f} standard deviations)"


def range_of(values: Sequence[float], form: str) -> str:
    """Return the ends of some sorted values, or the one value."""
    low, high = form.format(values[0]), form.format(values[-1])
    return low if low == high else f"{low} to {high}"


def listed(names: Sequence[str]) -> str:
    """Return names, the first few of them."""
    shown = list(names[:_MOST_NAMES])
    if len(names) > len(shown):
        return f"{', '.join(shown)} and {len(names) - len(shown)} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def p_text(p_value: float | None) -> str:
    """Return a p value as it is written."""
    return "no test" if p_value is None else f"p = {p_value:.2g}"
