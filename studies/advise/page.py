"""The page of an advice: one HTML file that a reader without knowledge of federated learning can follow."""

import math
from dataclasses import replace
from pathlib import Path

from florets.reports.console import counted, duration, size
from florets.reports.folder import write_whole
from florets.reports.pages import Cell, embedded, render
from florets.studies.advise.compare import Difference
from florets.studies.advise.measures import FORMS, amount, value
from florets.studies.advise.words import Words

NAME = "advice.html"
MOST_SITES = 200

_PAGE = """{% extends "page" %}
{% block css %}
.answer { font-size: 1.12rem; }
.verdict.none { border-color: var(--warn); }
ul.why { margin: .9rem 0 0; padding-left: 1.2rem; }
ul.why li { margin: .25rem 0; overflow-wrap: anywhere; }
table.methods, table.sites { width: 100%; font-size: .88rem; }
table.methods th, table.methods td, table.sites th, table.sites td { padding: .28rem .4rem; }
table.methods th, table.sites th, table.methods td:last-child, table.methods td:nth-last-child(3),
table.sites td:last-child { white-space: normal; }
table.methods th:first-child { min-width: 9.5rem; }
table.methods .chosen { background: #eaf4fb; font-weight: 600; }
table.sites td:last-child { text-align: left; color: var(--quiet); }
code { font: .9rem ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
{% endblock %}
{% block header %}
<p class="verdict {{ 'good' if useful else 'none' }} answer">{{ words.answer }}</p>
<ul class="why">{% for text in words.reasons %}<li>{{ text }}</li>{% endfor %}</ul>
{% endblock %}
{% block main %}
{{ tiles(figures) }}

{% call section("What was compared") %}
<p>Each {{ words.site }}'s records were split in three: to train on, to choose by ({{ validation }}), and to test the
choice. {% if by_newton %}All models are linear and were fitted by Newton's method in up to {{ rounds }}; the ridge
({{ rates }}) was chosen on the validation records, as was the method.{% else %}Every method was trained with learning
rates of {{ rates }} for up to {{ rounds }}, and stopped once it no longer improved on the validation records, which
also decided on the rate and on the method.{% endif %} All figures below are of the test records, which had no part in
that.</p>
{{ table(methods, "methods") }}
<p>The constant answer is the same for every record: {{ constant }}. {{ words.interval }}
{%- if epochs %} Fine-tuned: at the end each {{ words.site }} trains a copy of the common model on its own records
({{ epochs }} passes).{% endif %}</p>
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
{% if words.rows | length > most_sites %}
<p>The first {{ most_sites }}; all are in advice.json, next to this page.</p>
{% endif %}
<p>{{ form.title[0] | upper }}{{ form.title[1:] }} on the test records; of few records it is mostly noise.</p>
{{ table(sites, "sites") }}
{% endcall %}

{% call section("How to use it" if useful else "The best method tried") %}
<p><code>{{ words.command }}</code></p>
<p>What left a {{ words.site }}: models and their changes, sums of test results, and for tables counts, means and
spreads of columns; for the search for groups also a compressed change of the model for each of a few parts of its
records. No record.</p>
{% endcall %}

{% endblock %}
{% block footer %}
Written by Florets. The runs behind this page are in the folders next to it, each with its own report.
{% endblock %}
"""


_CONSTANT = {"r2": "the mean of the target", "log_loss": "the shares of the classes"}


def write_page(folder: Path, words: Words) -> Path:
    """Write the page into the folder of the runs and return its path."""
    advice, base = words.advice, words.question.base
    finding, measure = advice.finding, advice.criterion.measure
    title, picture = f"{base.experiment}, seed {base.seed}", folder / "discovery" / "discovery.png"
    html = render(
        _PAGE,
        name=f"Advice: {title}",
        above=title,
        title=f"What should these {words.sites(finding.num_clients)} use?",
        words=words,
        useful=advice.chosen is not None,
        figures=_tiles(words),
        by_newton=words.question.by_newton,
        rounds=counted(words.question.rounds, "round"),
        rates=", ".join(f"{rate:g}" for rate in sorted(words.question.rates)),
        validation=f"{base.task.validation_fraction:.0%} of the training records",
        form=FORMS[measure],
        methods=_methods(words),
        constant=_CONSTANT.get(measure, "the most frequent class"),
        epochs=f"{words.question.fine_tune_epochs:g}" if advice.outcome("tuned") is not None else "",
        groups=f"{words.listed_groups} ({words.p})." if finding.kind in ("groups", "lone") else f"{words.verdict}.",
        picture=embedded(picture) if picture.is_file() else None,
        sites=_sites(words),
        most_sites=MOST_SITES,
    )
    path = folder / NAME
    write_whole(path, html)
    return path


def _tiles(words: Words) -> list[tuple[str, str, str]]:
    advice, criterion, measure = words.advice, words.advice.criterion, words.measure
    outcome, finding = advice.best, advice.finding
    groups = str(len(finding.groups)) if finding.kind == "groups" else "none" if finding.p_value else "not tested"
    title = f"{FORMS[measure].title}, {'advised' if advice.chosen else 'best'} method"
    constant = f"constant answer: {value(advice.constant.figure(criterion), measure)}"
    note = f"all {words.site}s and rounds; {duration(outcome.seconds)} in this trial"
    return [
        ("groups", groups, words.p),
        (title, value(criterion.figure(outcome.test), measure), constant),
        ("data sent and received", size(outcome.num_bytes), note),
    ]


def _methods(words: Words) -> list[list[Cell]]:
    """Return the table of the methods, the constant answer first."""
    advice, criterion, answer = words.advice, words.advice.criterion, words.advice.constant
    names = (words.measure, *criterion.seconds)
    head = ["method", *(FORMS[name].title for name in names), "compared with the advised"]
    rows: list[list[Cell]] = [[*head, "settings, rounds", "sent and received, time"]]
    seconds = [answer.seconds.get(name, math.nan) for name in criterion.seconds]
    figures = [value(one, name) for one, name in zip([answer.figure(criterion), *seconds], names, strict=True)]
    versus = _versus(advice.over_constant if advice.chosen else None, words)
    rows.append(["Constant answer", *figures, versus, "-", "-"])
    for outcome in advice.outcomes:
        # What was not trained has no figures.
        tests = {} if outcome.name in advice.diverged else outcome.test
        figures = [value(replace(criterion, measure=name).figure(tests), name) for name in names]
        is_chosen = outcome.name == advice.chosen
        versus = "advised" if is_chosen else _versus(advice.against(outcome.name), words)
        versus = "training diverged" if outcome.name in advice.diverged else versus
        cost = f"{outcome.rate:g}, {outcome.rounds}", f"{size(outcome.num_bytes)}, {duration(outcome.seconds)}"
        cells = [words.title(outcome.name), *figures, versus, *cost]
        rows.append([(cell, {"class": "chosen"}) for cell in cells] if is_chosen else [*cells])
    return rows


def _versus(gain: Difference | None, words: Words) -> str:
    """Return how a method compares with the advised one, by the gain of that one."""
    if gain is None or not math.isfinite(gain.mean):
        return "-"
    return amount(-gain.mean, gain.half, words.measure, sign=True)


def _sites(words: Words) -> list[list[Cell]]:
    """Return the table of the sites."""
    group = ["group"] if len(words.advice.finding.groups) > 1 else []
    head = [words.site, *group, "training records", "test records", "advised", "alone", "one model", ""]
    rows: list[list[Cell]] = [[*head]]
    for row in words.rows[:MOST_SITES]:
        own = ["-" if row.group is None else str(row.group)] if group else []
        counts = [str(row.train) if row.train else "-", str(row.test)]
        figures = [value(figure, words.measure) for figure in (row.advised, row.alone, row.one_model)]
        rows.append([row.name, *own, *counts, *figures, row.note])
    return rows
