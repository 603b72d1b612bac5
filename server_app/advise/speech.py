"""Phrases of an advice: names of sites, their figures, and what sets them apart."""

import math
from collections.abc import Sequence

from florets.reports.console import counted
from florets.server_app.advise.advice import Advice
from florets.server_app.advise.causes import ColumnShift
from florets.server_app.advise.measures import OF_VALUES, amount, value
from florets.server_app.advise.methods import Question, Setup
from florets.server_app.advise.outcomes import Outcome
from florets.server_app.advise.sites import SiteRow, alternative, site_rows

_MOST_NAMES = 6


class Speech:
    """Phrases of one advice.

    Attributes
    ----------
    site
        What a client is called.
    measure
        That methods are compared by.
    rows
        The table of sites.
    """

    def __init__(self, advice: Advice, question: Question, setup: Setup) -> None:
        self.advice, self.question, self.setup = advice, question, setup
        self.site = "site" if question.is_own else "client"
        self.measure = advice.criterion.measure
        self.rows = site_rows(advice)

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
