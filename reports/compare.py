"""Methods compared on equal seeds: means with intervals, and paired differences with tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from florets.reports.statistics import FEWEST_PAIRS, Spread, holm, paired, paired_p

LEGEND = (
    "Intervals are 95 %, by Student's t; those of accuracies and ARI are computed on the logit scale and stay inside "
    "their range. Differences are paired by seed; p is that of the paired t test, with Holm's correction for the "
    f"number of comparisons. Fewer than {FEWEST_PAIRS} pairs, or equal differences, have no test."
)


@dataclass(frozen=True)
class Compared:
    """One method: its mean, and how it differs from another on equal seeds.

    Attributes
    ----------
    spread
        Mean and interval of its values.
    against
        The other method; empty for the one that others are compared with.
    difference
        Mean and interval of the paired differences, its values minus the other's.
    p, p_holm
        p value of the paired t test, plain and with Holm's correction over all comparisons; None without a test.
    """

    name: str
    spread: Spread
    against: str
    difference: Spread
    p: float | None = None
    p_holm: float | None = None


def compare(
    values: Mapping[str, Mapping[int, float]],
    against: Mapping[str, str],
    bounds: tuple[float, float] | None = None,
) -> Sequence[Compared]:
    """Compare methods with others.

    Parameters
    ----------
    values
        Of each method, by seed.
    against
        The method that each is compared with; one that is compared with none is left out.
    bounds
        Range of the figure, see `Spread.of`.
    """
    differences = {
        name: paired(known, values[against[name]]) if name in against else [] for name, known in values.items()
    }
    p_values = [paired_p(found) for found in differences.values()]
    adjusted = holm(p_values)
    return [
        Compared(
            name,
            Spread.of(list(known.values()), bounds),
            against.get(name, ""),
            Spread.of(differences[name]),
            p_values[place],
            adjusted[place],
        )
        for place, (name, known) in enumerate(values.items())
    ]
