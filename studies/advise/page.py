"""The page of an advice: one HTML file that a reader without knowledge of federated learning can follow."""

import math
from pathlib import Path
from typing import Any

from florets.reports.console import counted, duration, size
from florets.reports.folder import write_whole
from florets.reports.pages import Cell, embedded, render
from florets.reports.pooled import constant, read_test_statistics
from florets.studies.advise.advice import Advice
from florets.studies.advise.compare import FEW_RECORDS, Criterion
from florets.studies.advise.measures import FORMS, OF_VALUES, Name, amount, beside, value
from florets.studies.advise.methods import CONSTANT_TITLES, TITLES, Question, Setup
from florets.studies.advise.outcomes import Outcome, Tests
from florets.studies.advise.words import SiteRow, Words, alternative, p_text

NAME = "advice.html"
MOST_SITES = 200

_PAGE = """{% extends "page" %}
{% block css %}
.answer { font-size: 1.12rem; }
.verdict.none { border-color: var(--warn); }
ul.why { margin: .9rem 0 0; padding-left: 1.2rem; }
ul.why li { margin: .25rem 0; }
table.methods, table.sites { width: 100%; font-size: .88rem; }
table.methods th, table.methods td, table.sites th, table.sites td { padding: .28rem .4rem; }
table.methods th, table.sites th, table.methods td:last-child, table.methods td:nth-last-child(3),
table.sites td:last-child { white-space: normal; }
table.methods th:first-child { min-width: 9.5rem; }
table.methods .chosen { background: #eaf4fb; font-weight: 600; }
table.sites td.gain { color: var(--good); font-weight: 600; }
table.sites td:last-child { text-align: left; color: var(--quiet); }
.dots { position: relative; margin: 0 .4rem 1rem; font-size: .84rem; }
.dots .row { display: grid; grid-template-columns: minmax(9rem, 40%) 1fr; align-items: center; min-height: 1.9rem; }
.dots .row.is-chosen > span { font-weight: 700; }
.dots .track { position: relative; height: 1.5rem; border-bottom: 1px solid var(--line); }
.dots .track i { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--line); }
.dots .track i.constant { width: 0; background: none; border-left: 2px dashed var(--warn); }
.dots .track b { position: absolute; top: .45rem; width: .62rem; height: .62rem; margin-left: -.31rem;
  border-radius: 50%; background: var(--accent); opacity: .4; }
.dots .track b.apart { background: none; border: 1px solid var(--accent); opacity: .6; }
.dots .track u { position: absolute; top: .1rem; bottom: .1rem; width: 3px; margin-left: -1px;
  background: var(--ink); }
.dots .ticks { height: 1.2rem; border: 0; color: var(--quiet); }
.dots .ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
code { font: .9rem ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
ul.why li { overflow-wrap: anywhere; }
dl.terms dt { font-weight: 600; margin-top: .6rem; }
dl.terms dd { margin: 0; color: var(--quiet); }
@media (max-width: 44rem) { .dots .row { grid-template-columns: 1fr; padding-top: .3rem; } }
{% endblock %}
{% block header %}
<p class="verdict {{ 'good' if useful else 'none' }} answer">{{ words.answer }}</p>
<ul class="why">{% for text in words.reasons %}<li>{{ text }}</li>{% endfor %}</ul>
{% endblock %}
{% block main %}
{{ tiles(figures) }}

{% call section("What was compared") %}
<p>Each {{ words.site }}'s records were split in three: to train on, to choose by ({{ validation }}), and to test the
choice. Every method was trained with learning rates of {{ rates }} for up to {{ rounds }}, and stopped once it no
longer improved on the validation records, which also decided on the rate and on the method. All figures below are of
the test records, which had no part in that. A dot is a {{ words.site }} (hollow: few test records, or one class), a
bar the {{ "figure over all records" if together else "mean" }}
{%- if chart.constant is not none %}, the dashed line the constant answer{% endif %}; {{ better }} is better.</p>
<div class="dots">
{% for row in chart.rows -%}
<div class="row{% if row.chosen %} is-chosen{% endif %}"><span>{{ row.title }}</span>
<div class="track">
{%- for tick in chart.ticks %}<i style="left: {{ tick.x }}%"></i>{% endfor %}
{%- if chart.constant is not none %}<i class="constant" style="left: {{ chart.constant }}%"></i>{% endif %}
{%- for dot in row.dots %}
<b{% if dot.apart %} class="apart"{% endif %} style="left: {{ dot.x }}%" title="{{ dot.title }}"></b>
{%- endfor %}
{%- if row.mean is not none %}<u style="left: {{ row.mean }}%"></u>{% endif %}
</div></div>
{% endfor -%}
<div class="row"><span></span><div class="track ticks">
{%- for tick in chart.ticks %}<span style="left: {{ tick.x }}%">{{ tick.text }}</span>{% endfor -%}
</div></div>
</div>
{{ table(methods, "methods") }}
<p>{{ words.interval }}
{%- if together %} Methods are compared by the figure over all records; the mean over {{ words.site }}s is of those
with at least {{ fewest }} test records.{% else %} The mean counts every {{ words.site }} alike, but one with fewer
than {{ fewest }} test records less, by its records.{% endif %}
{%- if fine_tuned %} Fine-tuning is one more local training at the end ({{ epochs }} passes over the records).
{%- endif %}
</p>
{% endcall %}

{% call section("Are there groups?") %}
<p class="found">{{ groups }}</p>
{% if picture %}
<p>Left: for every number of groups K, how well groups formed on some of the records predict what is learned from the
others (1 = exactly, 0 = not at all). Right: how alike what two {{ words.site }}s learned is.</p>
{{ image(picture, "Score over the number of groups, and similarity of every pair of %ss" | format(words.site)) }}
{% endif %}
{% endcall %}

{% call folded("Each %s" | format(words.site), sites | length <= 41) %}
{% if more_sites %}<p>The first {{ sites | length - 1 }}; all are in advice.json, next to this page.</p>{% endif %}
<p>{{ measure[0] | upper }}{{ measure[1:] }} on the test records. Gain: advised minus {{ other }}, with a 95 %
interval by resampling the {{ words.site }}'s own test records.</p>
{{ table(sites, "sites") }}
{% if paragraphs %}<ul>{% for text in paragraphs %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
{% endcall %}

{% call section("What would change this answer") %}
<ul>{% for text in words.changes %}<li>{{ text }}</li>{% endfor %}</ul>
{% endcall %}

{% call section("How to use it" if useful else "The best that was found") %}
<p><code>{{ words.command }}</code></p>
<p>What left a {{ words.site }}: models and their changes, sums of test results, and for tables counts, means and
spreads of columns; for the search for groups also a compressed change of the model for each of a few parts of its
records. No record.</p>
{% endcall %}

{% call folded("Terms") %}
<dl class="terms">
<dt>{{ measure }}</dt><dd>{{ meaning }}</dd>
{% if second %}<dt>{{ second }}</dt><dd>{{ second_meaning }}</dd>{% endif %}
<dt>constant answer</dt><dd>Always the most frequent class, or the mean of the target. A model must beat it.</dd>
<dt>p</dt><dd>How often {{ words.site }}s without any difference would look as different as these. Groups are claimed
at 0.005 or less: by mistake once in 200 times.</dd>
<dt>FedAvg</dt><dd>All train one model; the server averages what they send back, round after round.</dd>
<dt>intercept per {{ words.site }}</dt><dd>One model for all, and a constant per {{ words.site }} that is added to its
output, shrunk towards the common one where a {{ words.site }} has few records.</dd>
<dt>fine-tuning</dt><dd>At the end each {{ words.site }} trains a copy of the common model on its own records.</dd>
<dt>discovery, CLoVE</dt><dd>Groups of {{ words.site }}s are detected during training, each with its own model.</dd>
<dt>Local-only</dt><dd>Each {{ words.site }} trains on its own records alone.</dd>
</dl>
{% endcall %}
{% endblock %}
{% block footer %}
Written by Florets. The runs behind this page are in the folders next to it, each with its own report.
{% endblock %}
"""


def write_page(folder: Path, advice: Advice, question: Question, setup: Setup) -> Path:
    """Write the page into the folder of the runs and return its path."""
    words = Words(advice, question, setup)
    base, form = question.base, FORMS[advice.criterion.measure]
    second = beside(advice.criterion.measure)
    title, picture = f"{base.experiment}, seed {base.seed}", folder / "discovery" / "discovery.png"
    html = render(
        _PAGE,
        name=f"Advice: {title}",
        above=title,
        title=f"What should these {words.sites(advice.finding.num_clients)} use?",
        words=words,
        useful=advice.chosen is not None,
        figures=_tiles(advice, words),
        rounds=counted(question.rounds, "round"),
        rates=", ".join(f"{rate:g}" for rate in setup.rates),
        validation=f"{question.validation:.0%} of the training records",
        chart=_chart(advice),
        measure=form.title,
        meaning=form.meaning,
        better="higher" if form.higher else "lower",
        second=None if second is None else FORMS[second].title,
        second_meaning="" if second is None else FORMS[second].meaning,
        together=advice.criterion.together,
        fewest=FEW_RECORDS,
        methods=_methods(advice, words, second),
        fine_tuned=advice.outcome("tuned") is not None,
        epochs=f"{question.fine_tune_epochs:g}",
        groups=_groups(advice, words),
        picture=embedded(picture) if picture.is_file() else None,
        paragraphs=words.paragraphs[:MOST_SITES],
        other="alone" if alternative(advice) == "local" else "one model",
        sites=_sites(advice, words),
        more_sites=len(words.rows) > MOST_SITES,
    )
    path = folder / NAME
    write_whole(path, html)
    return path


def _tiles(advice: Advice, words: Words) -> list[tuple[str, str, str]]:
    outcome, finding, criterion = advice.judged(advice.best), advice.finding, advice.criterion
    groups = {
        "groups": str(len(finding.groups)), "lone": "none", "none": "none", "all_differ": "all differ",
        "open": "not tested", "moving": "not tested",
    }  # fmt: skip
    tiles = [
        ("groups", groups.get(finding.kind, "too few to test"), p_text(finding.p_value)),
        (
            f"{FORMS[criterion.measure].title}, {'advised' if advice.chosen else 'best'} method",
            value(criterion.figure(outcome.test), criterion.measure),
            f"constant answer: {value(advice.constant.figure(criterion), criterion.measure)}",
        ),
    ]
    if (worst := criterion.worst(outcome.test)) is not None:
        test = outcome.test[worst]
        shown = value(criterion.own(test), criterion.measure)
        tiles.append((f"lowest {words.site}", shown, f"{advice.name(worst)}, {test.n} test records"))
    note = f"all {words.site}s and rounds; {duration(outcome.seconds)} in this trial"
    return [*tiles, ("data sent and received", size(outcome.num_bytes), note)]


def _methods(advice: Advice, words: Words, second: Name | None) -> list[list[Cell]]:
    """Return the table of the methods, the constant answer first."""
    head: list[Cell] = [
        "method",
        f"{FORMS[advice.criterion.measure].title}, mean over {words.site}s",
        "over all records",
    ]
    head += [] if second is None else [FORMS[second].title]
    head += ["compared with the advised", f"lowest {words.site}", "learning rate, rounds", "sent and received, time"]
    rows: list[list[Cell]] = [head, [*_constant_row(advice, second)]]
    for outcome in advice.outcomes:
        cells = _method_row(advice, outcome, second)
        rows.append([(cell, {"class": "chosen"}) for cell in cells] if outcome.name == advice.chosen else [*cells])
    return rows


def _method_row(advice: Advice, outcome: Outcome, second: Name | None) -> list[str]:
    gain, figures, criterion = advice.against(outcome.name), advice.judged(outcome), advice.criterion
    tests, measure = figures.test, criterion.measure
    text = "-"
    if outcome.name == advice.chosen:
        text = "advised"
    elif gain is not None and math.isfinite(gain.mean):
        text = amount(-gain.mean, gain.half, measure, sign=True)
    worst = criterion.worst(tests)
    lowest = "-" if worst is None else f"{advice.name(worst)}: {value(criterion.own(tests[worst]), measure)}"
    return [
        TITLES[outcome.name],
        value(_mean(criterion, tests), measure),
        value(criterion.over_records(tests), measure),
        *([] if second is None else [value(criterion.with_measure(second).figure(tests), second)]),
        text,
        lowest,
        f"{outcome.rate:g}, {outcome.rounds}",
        f"{size(outcome.num_bytes)}, {duration(outcome.seconds)}",
    ]


def _constant_row(advice: Advice, second: Name | None) -> list[str]:
    criterion, answer = advice.criterion, advice.constant
    pooled, gain = answer.figures.get("test"), advice.over_constant
    of_second = []
    if second is not None:
        statistics = read_test_statistics(Path(advice.best.folder))
        figure = constant(statistics, second).pooled if statistics and second != "loss" else math.nan
        of_second = [value(figure, second)]
    return [
        CONSTANT_TITLES[criterion.measure in OF_VALUES],
        value(_mean(criterion, answer.tests("test")), criterion.measure),
        "-" if pooled is None else value(pooled.pooled, criterion.measure),
        *of_second,
        amount(-gain.mean, gain.half, criterion.measure, sign=True) if math.isfinite(gain.mean) else "-",
        *("-", "-", "-"),
    ]


def _mean(criterion: Criterion, tests: Tests) -> float:
    """Return the mean over sites: the one that decides or, beside a figure over all records, the plain one."""
    return criterion.mean_of_sites(tests) if criterion.together else criterion.figure(tests)


def _groups(advice: Advice, words: Words) -> str:
    finding, p = advice.finding, p_text(advice.finding.p_value)
    if finding.kind == "none":
        return f"None: the {words.site}s cannot be told apart ({p})."
    if finding.kind == "too_few":
        return f"They cannot be tested for: too few records, or {words.site}s."
    if finding.kind == "open":
        return f"Not tested: too few of {words.sites(finding.num_clients)} sent what the test needs."
    if finding.kind == "moving":
        return (
            "Not tested: the common model was still improving when the rounds ended. More rounds (num_rounds) help."
        )
    if finding.kind == "all_differ":
        return f"None that help: each {words.site} differs from all others ({p})."
    return f"{' | '.join(words.named(group) for group in finding.groups)} ({p})."


def _sites(advice: Advice, words: Words) -> list[list[Cell]]:
    """Return the table of the sites."""
    several = len(advice.finding.groups) > 1
    head: list[Cell] = [words.site, *(["group"] if several else []), "training records", "test records"]
    rows: list[list[Cell]] = [[*head, "advised", "alone", "one model", "gain", ""]]
    for row in words.rows[:MOST_SITES]:
        rows.append(_site_row(row, words, several))
    return rows


def _site_row(row: SiteRow, words: Words, several: bool) -> list[Cell]:
    group = ["-" if row.group is None else str(row.group)] if several else []
    figures = [value(figure, words.measure) for figure in (row.advised, row.alone, row.one_model)]
    look = {"class": "gain"} if row.is_gain else {"class": "amiss"} if row.is_loss else {}
    gain = (words.interval_of(row), look)
    return [row.name, *group, str(row.train) if row.train else "-", str(row.test), *figures, gain, row.note]


def _chart(advice: Advice) -> dict[str, Any]:
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
