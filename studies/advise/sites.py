"""The table of sites: what each gains by the advised method, and which of them take part in comparisons."""

import math
from dataclasses import dataclass

from florets.studies.advise.advice import Advice
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
