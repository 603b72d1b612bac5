"""Advice in plain words: the answer, why, and what would change it."""

import math
from collections.abc import Sequence

from florets.server_app.advise.advice import Advice
from florets.server_app.advise.compare import FEW_CLIENTS, Difference, is_below, low_sites, pooled
from florets.server_app.advise.methods import NAMES, Question, command
from florets.server_app.advise.outcomes import Metric, Outcome
from florets.server_app.console import counted
from florets.server_app.results.report_figures import duration, size

_MOST_NAMES = 6
_NEAR = 0.05
"""A p value above the level and below this is near it."""

SHORT = {
    "fedavg": "FedAvg, one model for all",
    "discovery": "one model for each group (strategy=discovery)",
    "tuned": "FedAvg, and let each {site} fine-tune its copy of the model",
    "two_groups": "two groups, with a model each (strategy=discovery k=2)",
    "clove": "one model for each group (strategy=clove)",
    "local": "no federation: each {site} does better with a model of its own",
    "standardised": "FedAvg after each {site} has standardised its own inputs (task.data_options.standardise=true)",
}


class Words:
    """Texts of one advice."""

    def __init__(self, advice: Advice, question: Question) -> None:
        self.advice, self.question = advice, question
        self.site = "site" if question.is_own else "client"

    def sites(self, number: int) -> str:
        """Return a number of sites (clients, in a simulation)."""
        return counted(number, self.site)

    def named(self, keys: Sequence[str]) -> str:
        """Return names of clients; numbers are called what they are of."""
        plain = not any(key.isdecimal() for key in keys)
        return listed(keys) if plain else f"{self.site}{'' if len(keys) == 1 else 's'} {listed(keys)}"

    @property
    def use(self) -> str:
        """What to use, without a verb."""
        return SHORT[self.advice.chosen].format(site=self.site)

    @property
    def answer(self) -> str:
        """The answer in one line."""
        finding, lone = self.advice.finding, self.named(self.advice.finding.lone)
        count, p = self.sites(finding.num_clients), p_text(finding.p_value)
        if finding.kind == "none":
            return f"{count}, no groups ({p}): {self.use}."
        if finding.kind == "too_few":
            return f"{count}, too few to tell groups from chance: {self.use}."
        if finding.kind == "open":
            return f"{count}, of which too few took part to look for groups: {self.use}."
        if finding.kind == "all_differ":
            return f"{count}, and each differs from every other ({p}), so that groups do not help: {self.use}."
        if finding.kind == "lone":
            fits = "fits" if len(finding.lone) == 1 else "fit"
            return f"{count}, no groups of at least two; {lone} {fits} nobody ({p}): {self.use}."
        return f"{count} in {len(finding.groups)} groups ({p}): {self.use}."

    @property
    def reasons(self) -> list[str]:
        """What the answer stands on, in a few sentences."""
        return [*self._chance(), *self._groups(), *self._lone(), *self._scale(), *self._gain(), *self._low()]

    def _chance(self) -> list[str]:
        """Say in words what p value speaks against groups; small ones need no words."""
        finding = self.advice.finding
        if finding.kind != "none" or finding.p_value is None:
            return []
        often = max(1, round(100 * finding.p_value))
        who = self.site.capitalize()
        return [f"{who}s that do not differ at all look as different as these in {often} of 100 cases."]

    def _groups(self) -> list[str]:
        finding = self.advice.finding
        if finding.kind != "groups":
            return []
        found = [self.named(group) for group in finding.groups]
        said = [f"The groups: {' | '.join(found)}."]
        if self.advice.chosen == "fedavg":
            said.append("One model serves all of them as well as one for each group, so that nobody need be apart.")
        return [*said, *self._swapped()]

    def _swapped(self) -> list[str]:
        """Say whose labels may be coded the other way round: of two classes one model then takes the wrong one."""
        together, outputs = (
            self.advice.outcome("fedavg"),
            self.question.base.task.partition_options.get("num_outputs"),
        )
        if together is None or together.metric != "accuracy" or outputs != 2:
            return []
        said = []
        for group in self.advice.finding.groups:
            joined = pooled(together, group)
            if joined is not None and is_below(joined, 0.5):
                said.append(
                    f"One model for all is wrong on most records of {self.named(group)} ({100 * joined.value:.1f} % "
                    "right). Of two classes that is what labels look like that are coded the other way round: "
                    "compare the codes."
                )
        return said

    def _lone(self) -> list[str]:
        advice = self.advice
        if advice.finding.kind not in ("groups", "lone") or not advice.finding.lone:
            return []
        said = []
        bad = advice.own_is_low
        good = [key for key in advice.finding.lone if key not in bad]
        if bad:
            their = "its" if len(bad) == 1 else "their"
            alone = advice.outcome("local")
            others = "" if alone is None else f"mean of the others {_figure(advice.judged(alone))}"
            figures = "" if alone is None else f" ({_of_sites(alone, bad)} alone; {others})"
            said.append(
                f"No model predicts the records of {self.named(bad)}, {their} own neither{figures}: look for "
                "mistakes there, such as labels that do not belong to their records. Means and differences are of "
                f"the other {self.site}s."
            )
        alone = advice.outcome("local")
        badly = [] if alone is None else low_sites(alone)
        scarce = [key for key in good if key in badly]
        good = [key for key in good if key not in badly]
        if scarce:
            their = "its" if len(scarce) == 1 else "their"
            said.append(
                f"{self.named(scarce)}: a model of {their} own does badly here, and another does not. More records "
                f"would say what sets {'it' if len(scarce) == 1 else 'them'} apart."
            )
        if good and (alone is None or alone.metric != "accuracy" or len(alone.test) < 3):
            they = "follows" if len(good) == 1 else "follow"
            said.append(
                f"{self.named(good)} {they} another rule than the others, such as other codes, units, or patients, "
                "or there are mistakes in the records: compare the definitions."
            )
        elif good:
            their, its = ("its", "it follows") if len(good) == 1 else ("their", "they follow")
            said.append(
                f"{self.named(good)} can be predicted from {their} own records: {its} another rule than the others, "
                f"such as other codes, units, or patients. A model of {their} own is the way, or equal definitions."
            )
        return said

    def _scale(self) -> list[str]:
        advice, after = self.advice, self.advice.standardised
        if after is None or after.p_value is None:
            return []
        if advice.is_scale:
            return [
                f"The difference is gone once each {self.site} standardises its own inputs "
                f"({p_text(after.p_value)}): it lies in units, instruments or their settings, and not in what is to "
                "be predicted."
            ]
        return [f"Standardising the inputs at each {self.site} does not remove the difference."]

    def _gain(self) -> list[str]:
        advice = self.advice
        said = []
        if advice.finding.kind not in ("groups", "lone"):
            other, gain = "two_groups", advice.against("two_groups")
            subject = "Two groups"
        elif advice.chosen == "fedavg":
            # One group, and the clients that fit nobody: its model is one that they had no part in.
            apart = advice.finding.kind == "lone" and advice.own_is_low == advice.finding.lone
            lone = self.named(advice.finding.lone)
            other, subject = "discovery", f"Training without {lone}" if apart else "A model for each group"
            gain = advice.against(other)
        else:
            other, gain = "fedavg", advice.against("fedavg")
            as_is = advice.chosen == "standardised"
            subject = "FedAvg on the inputs as they are" if as_is else "One model for all (FedAvg)"
        if gain is not None and math.isfinite(gain.mean) and advice.chosen != other:
            said.append(f"{subject} would {self._lose(gain)}.")
        alone = advice.against("local")
        if advice.chosen != "local" and alone is not None and math.isfinite(alone.mean):
            said.append(f"Each {self.site} alone would {self._lose(alone)}.")
        return said

    def _lose(self, gain: Difference) -> str:
        """Return what another method would lose, given the chosen one's gain over it."""
        metric = self.advice.best.metric
        if gain.is_gain:
            return f"lose {amount(gain.mean, gain.half, metric)}"
        if gain.is_loss:
            return f"gain {amount(-gain.mean, gain.half, metric)} on the test records"
        return f"change {amount(-gain.mean, gain.half, metric, sign=True)}, which chance explains"

    def _low(self) -> list[str]:
        advice = self.advice
        low = [key for key in advice.low if key not in advice.finding.lone]
        if not low:
            return []
        return [
            f"{self.named(low)}: the advised model does worse here than elsewhere, by more than chance "
            f"({_of_sites(advice.best, low)}; mean {_figure(advice.best)})."
        ]

    @property
    def changes(self) -> list[str]:
        """What would change the answer."""
        advice, said = self.advice, []
        finding = advice.finding
        if (second := advice.runner_up) is not None and math.isfinite(second[1].half):
            other, gain = second
            title = NAMES[other.name].format(site=self.site)
            there = amount(-gain.mean, gain.half, other.metric, sign=True)
            seen = f", some {_plain(gain.half, other.metric)}: less cannot be seen" if gain.half else ""
            said.append(
                f"On the records that the method was chosen by, the next best is {title}: {there}. It would be "
                f"advised if it gained more than chance allows{seen}."
            )
        if finding.p_value is not None and finding.kind == "none":
            near = finding.p_value < _NEAR
            said.append(
                "Groups are claimed at p = 0.005 or less. "
                + (
                    f"{p_text(finding.p_value)} is near: with more records at each {self.site} look again."
                    if near
                    else f"More records at each {self.site} would show smaller differences, which matter less."
                )
            )
        if finding.kind == "too_few":
            said.append(f"With more {self.site}s, or more records at each, groups can be looked for.")
        if finding.kind == "open":
            said.append(f"With more rounds, or more {self.site}s in each, groups are looked for.")
        mistakes = bool(advice.own_is_low) and advice.own_is_low == finding.lone
        if finding.kind == "lone" and mistakes:
            said.append(f"Once the records of {self.named(finding.lone)} have been looked at, ask again.")
        elif finding.kind in ("groups", "lone") and not advice.is_scale:
            said.append(
                f"If the {self.site}s agreed on what sets them apart (codes of the labels, units, whom they record), "
                "one model could learn from all records."
            )
        if advice.is_scale:
            said.append(
                f"If a {self.site}'s level itself tells something (its patients are more severe cases), "
                "standardising hides that: compare the figures of both."
            )
        return [*said, f"{self._place('Another')} changes the answer only as far as it is unlike these: ask again."]

    def _place(self, word: str) -> str:
        return f"{word} {self.site}"

    @property
    def interval(self) -> str:
        """What the intervals are over."""
        count = len(self.advice.judged(self.advice.best).test)
        points = "Points are percentage points of accuracy; " if self.advice.best.metric == "accuracy" else ""
        if count < FEW_CLIENTS and self.advice.best.metric == "accuracy":
            return (
                f"{points}± is a 95 % interval for these {self.sites(count)}: it comes from the number of records "
                f"that each tested, and says nothing about other {self.site}s."
            )
        return f"{points}± is a 95 % interval over {self.site}s like these (Student's t over paired differences)."

    @property
    def cost(self) -> str:
        """What the advised method took, all clients together."""
        best, rounds = self.advice.best, self.question.base.num_rounds
        return (
            f"{size(best.num_bytes)} sent and received by all {self.site}s together in {counted(rounds, 'round')}, "
            f"which took {duration(best.seconds)} in this trial."
        )

    @property
    def short(self) -> str:
        """The answer for the screen."""
        advice = self.advice
        expected = advice.judged(advice.best)
        worst = expected.worst
        lines = [self.answer, *self.reasons]
        if worst is not None:
            lines.append(
                f"Expected: {_figure(expected)} on records that no model has seen (mean over {self.site}s); "
                f"worst at {self.named([worst[0]])}, {value(worst[1].value, advice.best.metric)}."
            )
        lines.append(f"Cost: {self.cost}")
        lines += [self.interval, f"What would change this answer: {' '.join(self.changes)}"]
        return "\n".join([*lines, f"Use: {command(self.question, advice.chosen, advice.finding)}"])


def listed(keys: Sequence[str]) -> str:
    """Return names of clients, the first few of them."""
    names = list(keys[:_MOST_NAMES])
    if len(keys) > len(names):
        return f"{', '.join(names)} and {len(keys) - len(names)} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def p_text(p_value: float | None) -> str:
    """Return a p value as it is written."""
    return "no test" if p_value is None else f"p = {p_value:.2g}"


def value(number: float, metric: Metric) -> str:
    """Return an accuracy or a loss as it is written."""
    return f"{100 * number:.1f} %" if metric == "accuracy" else f"{number:.4g}"


def _figure(outcome: Outcome) -> str:
    return value(outcome.mean, outcome.metric) if outcome.metric == "accuracy" else f"loss {outcome.mean:.4g}"


def _of_sites(outcome: Outcome, keys: Sequence[str]) -> str:
    return ", ".join(value(outcome.test[key].value, outcome.metric) for key in keys if key in outcome.test)


def _plain(number: float, metric: Metric) -> str:
    return f"{number:.1f} points" if metric == "accuracy" else f"{number:.3g} of loss"


def amount(mean: float, half: float, metric: Metric, sign: bool = False) -> str:
    """Return a difference with its interval."""
    plus = "+" if sign else ""
    between = f" ± {half:.1f}" if metric == "accuracy" else f" ± {half:.2g}"
    # No minus before what is rounded to 0.
    mean = round(mean, 1) + 0.0 if metric == "accuracy" else mean
    number = f"{mean:{plus}.1f}" if metric == "accuracy" else f"{mean:{plus}.3g}"
    return f"{number}{between if math.isfinite(half) else ''} {'points' if metric == 'accuracy' else 'of loss'}"
