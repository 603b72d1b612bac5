"""Units: a known conversion beyond the spread between sites is one, natural differences are none."""

import numpy as np
import pytest

from florets.server_app.units import Span, conversion, outside


def span(mean: float, deviation: float) -> Span:
    return mean - 1.28 * deviation, mean, mean + 1.28 * deviation


@pytest.mark.parametrize(
    ("usual", "own", "factor"),
    [
        ((230, 40), (230 / 38.67, 40 / 38.67), 1 / 38.67),
        ((170, 9), (66, 3.6), 1 / 2.54),
        ((1.0, 0.2), (90, 17), 88.42),
        ((62, 9), (760, 100), 12.0),
        # 37 degrees are 98.6: inches to cm would have a spread of 2.54 times.
        ((37, 0.5), (98.5, 0.9), 1.8),
        ((37, 0.5), (310.1, 0.5), 1.0),
        ((98.6, 0.9), (36.9, 0.5), 1 / 1.8),
    ],
    ids=["cholesterol", "inches", "creatinine", "months", "fahrenheit", "kelvin", "celsius"],
)
def test_a_unit_is_a_known_conversion(usual: tuple[float, float], own: tuple[float, float], factor: float) -> None:
    spans = {name: span(usual[0] * shift, usual[1]) for name, shift in (("a", 0.98), ("b", 1.0), ("c", 1.02))}
    found = outside({**spans, "d": span(*own)})
    assert found.keys() == {"d"}
    known = conversion(span(*own), found["d"])
    assert known is not None
    assert known.factor == pytest.approx(factor)


def test_no_conversion_has_this_factor_or_another_one_for_the_spread() -> None:
    usual = span(100.0, 10.0)
    assert conversion(span(550.0, 55.0), usual) is None
    assert conversion(span(1200.0, 10.0), usual) is None


def test_persons_who_differ_leave_no_gap_and_two_units_among_many_do() -> None:
    rng = np.random.default_rng(0)
    persons = {key: span(level, 0.2 * level) for key, level in enumerate(np.exp(rng.normal(0, 0.6, 42)))}
    assert outside(persons) == {}
    # One is 12 times as high as the others' middle, and near the next.
    assert outside({**persons, "high": span(1.5 * max(mean for _, mean, _ in persons.values()), 0.3)}) == {}
    cm = {key: span(length, 8.0) for key, length in enumerate(rng.normal(170, 3, 30))}
    odd = {"inch": span(67.0, 3.1), "inch too": span(66.0, 3.2), "m": span(1.7, 0.08)}
    assert outside({**cm, **odd}).keys() == odd.keys()


def test_around_zero_the_fewer_sites_are_outside() -> None:
    usual = {"a": span(-0.4, 1.0), "b": span(-0.2, 1.0), "c": span(0.0, 1.0)}
    assert outside(usual) == {}
    assert outside({**usual, "d": span(-8.0, 0.4), "e": span(-8.5, 0.4)}).keys() == {"d", "e"}
    # Other means, and values in common.
    assert outside({**usual, "d": span(2.5, 2.0)}) == {}
