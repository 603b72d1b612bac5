"""The dot chart of an advice: a row for each method, a dot for each client, places in per cent of the width."""

import math
from typing import Any

from florets.studies.advise.advice import Advice
from florets.studies.advise.measures import FORMS, value
from florets.studies.advise.methods import TITLES


def chart(advice: Advice) -> dict[str, Any]:
    """Return rows and ticks; clients that enter no comparison are hollow dots."""
    criterion, measure = advice.criterion, advice.criterion.measure
    form = FORMS[measure]
    shown = [criterion.figure(advice.judged(one).test) for one in advice.outcomes]
    for one in advice.outcomes:
        shown += [criterion.own(test) for key, test in one.test.items() if not criterion.leaves_out(key, one.test)]
    finite = [number for number in shown if math.isfinite(number)] or [0.0, 1.0]
    if form.higher:
        # Of R2 what is far below the constant answer is at the edge.
        high, least = 1.0, max(min(finite), -1.0)
        step = 0.1 if least >= 0.5 else 0.2 if least >= 0 else 0.5
        low = high - step * max(1, math.ceil((high - least) / step - 1e-9))
    else:
        low, high = 0.0, sorted(finite)[-1] or 1.0
        step = high / 5
    ticks = [low + step * number for number in range(round((high - low) / step) + 1)]

    def place(number: float) -> float:
        return round(100 * (min(max(number, low), high) - low) / (high - low), 2)

    rows = []
    for one in advice.outcomes:
        mean = criterion.figure(advice.judged(one).test)
        dots = [
            {
                "x": place(criterion.own(test)),
                "title": f"{advice.name(key)}: {value(criterion.own(test), measure)}",
                "apart": key in criterion.apart,
            }
            for key, test in one.test.items()
            if math.isfinite(criterion.own(test))
        ]
        rows.append(
            {
                "title": TITLES[one.name],
                "chosen": one.name == advice.chosen,
                "mean": place(mean) if math.isfinite(mean) else None,
                "dots": dots,
            }
        )
    constant = advice.constant.figure(criterion)
    texts = [f"{100 * tick:.0f} %" if form.percent else f"{tick:.3g}" for tick in ticks]
    return {
        "rows": rows,
        "ticks": [{"x": place(tick), "text": text} for tick, text in zip(ticks, texts, strict=True)],
        "constant": place(constant) if math.isfinite(constant) else None,
    }
