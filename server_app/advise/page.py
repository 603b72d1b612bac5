"""The page of an advice: one HTML file that a reader without knowledge of federated learning can follow."""

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from florets.reports.console import counted, duration, size
from florets.reports.folder import write_whole
from florets.reports.report_template import CSS
from florets.server_app.advise.advice import Advice
from florets.server_app.advise.chart import chart
from florets.server_app.advise.compare import FEW_RECORDS, Criterion
from florets.server_app.advise.measures import FORMS, OF_VALUES, Name, amount, beside, value
from florets.server_app.advise.methods import CONSTANT_TITLES, TITLES, Question, Setup
from florets.server_app.advise.outcomes import Outcome, Tests
from florets.server_app.advise.page_template import PAGE
from florets.server_app.advise.page_template import STYLE as OWN_STYLE
from florets.server_app.advise.sites import SiteRow, alternative
from florets.server_app.advise.speech import p_text
from florets.server_app.advise.words import Words
from florets.server_app.results.sums_of_tests import constant, read_test_statistics

NAME = "advice.html"
MOST_SITES = 200


def write_page(folder: Path, advice: Advice, question: Question, setup: Setup) -> Path:
    """Write the page into the folder of the runs and return its path."""
    words = Words(advice, question, setup)
    base, form = question.base, FORMS[advice.criterion.measure]
    second = beside(advice.criterion.measure)
    # Names of clients come from other machines: autoescape keeps them text.
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(PAGE)
    html = page.render(
        style=CSS + OWN_STYLE,
        title=f"{base.experiment}, seed {base.seed}",
        words=words,
        useful=advice.chosen is not None,
        finding=advice.finding,
        tiles=_tiles(advice, words),
        rounds=counted(question.rounds, "round"),
        rates=", ".join(f"{rate:g}" for rate in setup.rates),
        validation=f"{question.validation:.0%} of the training records",
        chart=chart(advice),
        measure=form.title,
        meaning=form.meaning,
        better="higher" if form.higher else "lower",
        second=None if second is None else FORMS[second].title,
        second_meaning="" if second is None else FORMS[second].meaning,
        together=advice.criterion.together,
        fewest=FEW_RECORDS,
        methods=[_constant_row(advice, second), *(_method(advice, one, words, second) for one in advice.outcomes)],
        fine_tuned=advice.outcome("tuned") is not None,
        epochs=f"{question.fine_tune_epochs:g}",
        groups=_groups(advice, words),
        picture=_picture(folder / "discovery" / "discovery.png"),
        paragraphs=words.speech.paragraphs[:MOST_SITES],
        several=len(advice.finding.groups) > 1,
        other="alone" if alternative(advice) == "local" else "one model",
        sites=[_site(row, words) for row in words.speech.rows[:MOST_SITES]],
        more_sites=len(words.speech.rows) > MOST_SITES,
    )
    path = folder / NAME
    write_whole(path, html)
    return path


def _tiles(advice: Advice, words: Words) -> list[dict[str, str]]:
    outcome, finding, criterion = advice.judged(advice.best), advice.finding, advice.criterion
    groups = {
        "groups": str(len(finding.groups)), "lone": "none", "none": "none", "all_differ": "all differ",
        "open": "not tested", "moving": "not tested",
    }  # fmt: skip
    tiles = [
        {"name": "groups", "value": groups.get(finding.kind, "too few to test"), "note": p_text(finding.p_value)},
        {
            "name": f"{FORMS[criterion.measure].title}, {'advised' if advice.chosen else 'best'} method",
            "value": value(criterion.figure(outcome.test), criterion.measure),
            "note": f"constant answer: {value(advice.constant.figure(criterion), criterion.measure)}",
        },
    ]
    if (worst := criterion.worst(outcome.test)) is not None:
        test = outcome.test[worst]
        shown = value(criterion.own(test), criterion.measure)
        note = f"{advice.name(worst)}, {test.n} test records"
        tiles.append({"name": f"lowest {words.site}", "value": shown, "note": note})
    note = f"all {words.site}s and rounds; {duration(outcome.seconds)} in this trial"
    return [*tiles, {"name": "data sent and received", "value": size(outcome.num_bytes), "note": note}]


def _method(advice: Advice, outcome: Outcome, words: Words, second: Name | None) -> dict[str, Any]:
    gain, figures = advice.against(outcome.name), advice.judged(outcome)
    criterion = advice.criterion
    worst = criterion.worst(figures.test)
    text = "-"
    if outcome.name == advice.chosen:
        text = "advised"
    elif gain is not None and math.isfinite(gain.mean):
        text = amount(-gain.mean, gain.half, criterion.measure, sign=True)
    return {
        "chosen": outcome.name == advice.chosen,
        "title": TITLES[outcome.name],
        "mean": value(_mean(criterion, figures.test), criterion.measure),
        "pooled": value(criterion.over_records(figures.test), criterion.measure),
        "second": "" if second is None else value(criterion.with_measure(second).figure(figures.test), second),
        "gain": text,
        "worst": "-"
        if worst is None
        else f"{advice.name(worst)}: {value(criterion.own(figures.test[worst]), criterion.measure)}",
        "settings": f"{outcome.rate:g}, {outcome.rounds}",
        "cost": f"{size(outcome.num_bytes)}, {duration(outcome.seconds)}",
    }


def _mean(criterion: Criterion, tests: Tests) -> float:
    """Return the mean over sites: the one that decides or, beside a figure over all records, the plain one."""
    return criterion.mean_of_sites(tests) if criterion.together else criterion.figure(tests)


def _constant_row(advice: Advice, second: Name | None) -> dict[str, Any]:
    """Return the row of the constant answer."""
    criterion, answer = advice.criterion, advice.constant
    title = CONSTANT_TITLES[criterion.measure in OF_VALUES]
    tests, pooled = answer.tests("test"), answer.figures.get("test")
    gain = advice.over_constant
    of_second = ""
    if second is not None:
        statistics = read_test_statistics(Path(advice.best.folder))
        figure = constant(statistics, second).pooled if statistics and second != "loss" else math.nan
        of_second = value(figure, second)
    return {
        "chosen": False,
        "title": title,
        "mean": value(_mean(criterion, tests), criterion.measure),
        "pooled": "-" if pooled is None else value(pooled.pooled, criterion.measure),
        "second": of_second,
        "gain": amount(-gain.mean, gain.half, criterion.measure, sign=True) if math.isfinite(gain.mean) else "-",
        "worst": "-",
        "settings": "-",
        "cost": "-",
    }


def _groups(advice: Advice, words: Words) -> str:
    finding, p = advice.finding, p_text(advice.finding.p_value)
    if finding.kind == "none":
        return f"None: the {words.site}s cannot be told apart ({p})."
    if finding.kind == "too_few":
        return f"They cannot be tested for: too few records, or {words.site}s."
    if finding.kind == "open":
        return f"Not tested: too few of {words.speech.sites(finding.num_clients)} sent what the test needs."
    if finding.kind == "moving":
        return (
            "Not tested: the common model was still improving when the rounds ended. More rounds (num_rounds) help."
        )
    if finding.kind == "all_differ":
        return f"None that help: each {words.site} differs from all others ({p})."
    return f"{' | '.join(words.speech.named(group) for group in finding.groups)} ({p})."


def _site(row: SiteRow, words: Words) -> dict[str, Any]:
    measure = words.measure
    return {
        "name": row.name,
        "group": "-" if row.group is None else str(row.group),
        "train": str(row.train) if row.train else "-",
        "test": str(row.test),
        "figures": [value(figure, measure) for figure in (row.advised, row.alone, row.one_model)],
        "gain": words.speech.interval_of(row),
        "is_gain": row.is_gain,
        "is_loss": row.is_loss,
        "note": row.note,
    }


def _picture(path: Path) -> dict[str, Any] | None:
    """Return the plot of the run that looked for groups, where it drew one."""
    if not path.is_file():
        return None
    png = path.read_bytes()
    # The header of a PNG has its width in bytes 16 to 19; 1.5 dots for each pixel of the page keep it sharp.
    return {"data": base64.b64encode(png).decode("ascii"), "width": int.from_bytes(png[16:20], "big") * 2 // 3}
