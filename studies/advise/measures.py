"""Measures of predictions: which suits the data, which direction is better, and how figures and names are written."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Name = Literal["accuracy", "auc", "log_loss", "r2", "rmse", "loss"]
"""Figures over all records, and the training loss for tasks that have none of them."""

RARE = 0.2
"""Fraction of a site's records below which one of two classes is rare."""


@dataclass(frozen=True)
class Form:
    """How a measure is read and written; with `percent` differences are percentage points.

    `worst` is what figures are written up to: how much worse one is says nothing more.
    """

    title: str
    higher: bool
    percent: bool
    digits: str
    worst: float = math.inf


FORMS: dict[Name, Form] = {
    "accuracy": Form("accuracy", True, True, ".1f"),
    "auc": Form("AUC", True, False, ".3f"),
    "log_loss": Form("log loss", False, False, ".3f", 5.0),
    "r2": Form("R2", True, False, ".3f", -1.0),
    "rmse": Form("RMSE", False, False, ".4g"),
    "loss": Form("loss", False, False, ".4g"),
}

_MOST = 2.0
"""Differences are written up to so many times the worst figure."""


def suitable(is_regression: bool) -> Name:
    """Return the measure that methods are compared by: R2 of values, the log loss of classes.

    The log loss is the R2 of classes. It is a proper score: it sees a probability of 0.6 become 0.7, where accuracy
    sees nothing as long as the same class is the most likely one, and a rare class as well as a frequent one. It adds
    up over records, so that methods are compared record by record, and few records suffice.
    """
    return "r2" if is_regression else "log_loss"


def seconds_of(measure: Name, counts: Collection[FloatArray]) -> tuple[Name, ...]:
    """Return the measures that are shown in addition, by the training records of each class at each site.

    Of classes the accuracy, but where one of two is rare, and a constant is nearly always right; of two classes the
    area under the curve.
    """
    if measure == "r2":
        return ("rmse",)
    if measure != "log_loss" or not counts:
        return ()
    rarest = min((own.min() / own.sum() for own in counts if len(own) == 2 and own.min() > 0), default=1.0)
    known: tuple[Name, ...] = () if rarest < RARE else ("accuracy",)
    return (*known, "auc") if max(map(len, counts)) == 2 else known


def worth(figure: float, measure: Name) -> float:
    """Return what figures are ordered by, the best one last; what is not finite is worth least."""
    return gain(figure, 0.0, measure) if math.isfinite(figure) else -math.inf


def gain(first: float, second: float, measure: Name) -> float:
    """Return how much better the first figure is, positive if it is: in points where the measure has percentages."""
    form = FORMS[measure]
    return (1 if form.higher else -1) * (100 if form.percent else 1) * (first - second)


def unit_of(measure: Name) -> float:
    """Return what a difference of 1 in the figure is as a gain, without its sign."""
    return abs(gain(1.0, 0.0, measure))


def plain(number: float, digits: int = 3) -> str:
    """Return a number of any size with so many significant digits, without an exponent where it is large."""
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10.0**digits else f"{rounded:.{digits}g}"


def value(number: float, measure: Name) -> str:
    """Return a figure as it is written."""
    form = FORMS[measure]
    if not math.isfinite(number):
        return "-"
    if math.isfinite(form.worst) and gain(number, form.worst, measure) < 0:
        return f"{'<' if form.higher else '>'} {form.worst:g}"
    if form.percent:
        return f"{_rounded(100 * number, form)} %"
    return plain(number, 4) if form.digits.endswith("g") else _rounded(number, form)


def _rounded(number: float, form: Form) -> str:
    # No minus in front of what is rounded to 0.
    return f"{float(f'{number:{form.digits}}') + 0.0:{form.digits}}"


def named(number: float, measure: Name) -> str:
    """Return a figure with its measure's name, for a sentence."""
    return f"{FORMS[measure].title} {value(number, measure)}"


def amount(mean: float, half: float, measure: Name, sign: bool = False) -> str:
    """Return a difference with the half width of its interval, and its unit where it has one."""
    form = FORMS[measure]
    most = _MOST * abs(form.worst)

    def written(number: float) -> str:
        if abs(number) > most:
            return f"{'-' if number < 0 else ''}{most:g} or more"
        return plain(number) if form.digits.endswith("g") else _rounded(number, form)

    shown = written(mean)
    plus = "+" if sign and not shown.startswith("-") else ""
    interval = f" ± {written(half)}" if math.isfinite(half) and abs(mean) <= most else ""
    return f"{plus}{shown}{interval}{' points' if form.percent else ''}"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def range_of(values: Sequence[float], write: Callable[[float], str]) -> str:
    """Return the ends of some sorted values, or the one value."""
    return " to ".join(dict.fromkeys(map(write, (values[0], values[-1]))))
