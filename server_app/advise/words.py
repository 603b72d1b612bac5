"""Advice in plain words: the answer, why, and what would change it."""

import math

from florets.reports.console import counted, duration, size
from florets.server_app.advise.advice import Advice
from florets.server_app.advise.compare import FEW_CLIENTS
from florets.server_app.advise.measures import FORMS, amount
from florets.server_app.advise.methods import NAMES, Question, Setup, command
from florets.server_app.advise.reasons import Reasons
from florets.server_app.advise.speech import Speech, p_text

_MOST_SITES = 8
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
    """Texts of one advice."""

    def __init__(self, advice: Advice, question: Question, setup: Setup) -> None:
        self.advice, self.question, self.setup = advice, question, setup
        self.speech = Speech(advice, question, setup)
        self.site, self.measure = self.speech.site, self.speech.measure

    @property
    def reasons(self) -> list[str]:
        """What the answer stands on, in a few sentences."""
        return Reasons(self.speech).all

    @property
    def use(self) -> str:
        """What to use, without a verb."""
        return SHORT[self.advice.best.name].format(site=self.site)

    @property
    def found(self) -> str:
        """What was found of groups, without a verb."""
        finding, lone = self.advice.finding, self.speech.named(self.advice.finding.lone)
        count, p = self.speech.sites(finding.num_clients), p_text(finding.p_value)
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
                said.append(f"Ask again once the records of {self.speech.named(finding.lone)} are corrected.")
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
                f"{better}{points} ± is a 95 % interval for these {self.speech.sites(count)}, from their test "
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
        paragraphs = self.speech.paragraphs
        if paragraphs and len(paragraphs) <= _MOST_SITES:
            lines += [f"  {text}" for text in paragraphs]
        lines.append(self.interval)
        if self.advice.chosen is not None:
            lines += [f"Cost: {self.cost}", f"Use: {self.command}"]
        return "\n".join(lines)
