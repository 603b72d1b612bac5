"""The page of an advice: one HTML file that a reader without knowledge of federated learning can follow."""

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from florets.reports.console import counted, duration, size
from florets.reports.folder import write_whole
from florets.reports.report_template import CSS
from florets.server_app.results.sums_of_tests import constant, read_test_statistics
from florets.studies.advise.advice import Advice
from florets.studies.advise.compare import FEW_RECORDS, Criterion
from florets.studies.advise.measures import FORMS, OF_VALUES, Name, amount, beside, value
from florets.studies.advise.methods import CONSTANT_TITLES, TITLES, Question, Setup
from florets.studies.advise.outcomes import Outcome, Tests
from florets.studies.advise.words import SiteRow, Words, alternative, p_text

OWN_STYLE = """
.answer { font-size: 1.12rem; }
.verdict.none { border-color: #b45309; }
ul.why { margin: .9rem 0 0; padding-left: 1.2rem; }
ul.why li { margin: .25rem 0; }
table.methods { width: 100%; font-size: .88rem; }
table.methods td:first-child, table.methods th:first-child { white-space: normal; min-width: 9.5rem; }
table.methods th, table.methods td:last-child { white-space: normal; }
table.methods tr.chosen > * { background: #eaf4fb; font-weight: 600; }
table.sites { width: 100%; font-size: .88rem; }
table.sites th { white-space: normal; }
table.methods th, table.methods td, table.sites th, table.sites td { padding: .28rem .4rem; }
table.methods td:nth-last-child(3) { white-space: normal; }
table.sites td.gain { color: var(--good); font-weight: 600; }
table.sites td.loss { color: #a33a00; font-weight: 600; }
table.sites td:last-child { text-align: left; color: var(--quiet); white-space: normal; }
table.methods tr.chosen > td:first-child { background: #eaf4fb; }
.dots { position: relative; margin: 0 .4rem 1rem; font-size: .84rem; }
.dots .row { display: grid; grid-template-columns: minmax(9rem, 40%) 1fr; align-items: center; min-height: 1.9rem; }
.dots .row.is-chosen > span { font-weight: 700; }
.dots .track { position: relative; height: 1.5rem; border-bottom: 1px solid var(--line); }
.dots .track i { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--line); }
.dots .track i.constant { width: 0; background: none; border-left: 2px dashed #b45309; }
.dots .track b { position: absolute; top: .45rem; width: .62rem; height: .62rem; margin-left: -.31rem;
  border-radius: 50%; background: #0072b2; opacity: .4; }
.dots .track b.apart { background: none; border: 1px solid #0072b2; opacity: .6; }
.dots .track u { position: absolute; top: .1rem; bottom: .1rem; width: 3px; margin-left: -1px; background: #1f2933; }
.dots .ticks { height: 1.2rem; border: 0; color: var(--quiet); }
.dots .ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
code { font: .9rem ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
section ul { margin: 0; padding-left: 1.2rem; }
section li { margin: .3rem 0; overflow-wrap: anywhere; }
.answer, ul.why li, .found { overflow-wrap: anywhere; }
dl.terms dt { font-weight: 600; margin-top: .6rem; }
dl.terms dd { margin: 0; color: var(--quiet); }
@media (max-width: 44rem) { .dots .row { grid-template-columns: 1fr; padding-top: .3rem; } }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Advice: {{ title }} (Florets)</title>
<style>{{ style | safe }}</style>
</head>
<body>
<main>
<header>
<p>{{ title }}</p>
<h1>What should these {{ words.speech.sites(finding.num_clients) }} use?</h1>
<p class="verdict {{ 'good' if useful else 'none' }} answer">{{ words.answer }}</p>
<ul class="why">{% for text in words.reasons %}<li>{{ text }}</li>{% endfor %}</ul>
</header>

<dl class="tiles">
{% for tile in tiles -%}
<div><dt>{{ tile.name }}</dt><dd>{{ tile.value }}</dd>
{%- if tile.note %}<dd class="note">{{ tile.note }}</dd>{% endif %}</div>
{% endfor -%}
</dl>

<section>
<h2>What was compared</h2>
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
<div class="wide"><table class="methods">
<thead><tr><th scope="col">method</th>
<th scope="col">{{ measure }}, mean over {{ words.site }}s</th><th scope="col">over all records</th>
{% if second %}<th scope="col">{{ second }}</th>{% endif %}
<th scope="col">compared with the advised</th>
<th scope="col">lowest {{ words.site }}</th><th scope="col">learning rate, rounds</th>
<th scope="col">sent and received, time</th>
</tr></thead>
<tbody>
{% for row in methods -%}
<tr{% if row.chosen %} class="chosen"{% endif %}>
<td>{{ row.title }}</td><td>{{ row.mean }}</td><td>{{ row.pooled }}</td>
{% if second %}<td>{{ row.second }}</td>{% endif %}
<td>{{ row.gain }}</td><td>{{ row.worst }}</td><td>{{ row.settings }}</td><td>{{ row.cost }}</td></tr>
{% endfor -%}
</tbody></table></div>
<p>{{ words.interval }}
{%- if together %} Methods are compared by the figure over all records; the mean over {{ words.site }}s is of those
with at least {{ fewest }} test records.{% else %} The mean counts every {{ words.site }} alike, but one with fewer
than {{ fewest }} test records less, by its records.{% endif %}
{%- if fine_tuned %} Fine-tuning is one more local training at the end ({{ epochs }} passes over the records).
{%- endif %}
</p>
</section>

<section>
<h2>Are there groups?</h2>
<p class="found">{{ groups }}</p>
{% if picture %}
<p>Left: for every number of groups K, how well groups formed on some of the records predict what is learned from the
others (1 = exactly, 0 = not at all). Right: how alike what two {{ words.site }}s learned is.</p>
<img src="data:image/png;base64,{{ picture.data }}" width="{{ picture.width }}"
alt="Score over the number of groups, and similarity of every pair of {{ words.site }}s">
{% endif %}
</section>

<section>
<details{% if sites | length <= 40 %} open{% endif %}>
<summary>Each {{ words.site }}</summary>
{% if more_sites %}<p>The first {{ sites | length }}; all are in advice.json, beside this page.</p>{% endif %}
<p>{{ measure[0] | upper }}{{ measure[1:] }} on the test records. Gain: advised minus {{ other }}, with a 95 %
interval by resampling the {{ words.site }}'s own test records.</p>
<div class="wide"><table class="sites">
<thead><tr><th scope="col">{{ words.site }}</th>{% if several %}<th scope="col">group</th>{% endif %}
<th scope="col">training records</th><th scope="col">test records</th><th scope="col">advised</th>
<th scope="col">alone</th><th scope="col">one model</th><th scope="col">gain</th><th></th></tr></thead>
<tbody>
{% for row in sites -%}
<tr><td>{{ row.name }}</td>{% if several %}<td>{{ row.group }}</td>{% endif %}<td>{{ row.train }}</td>
<td>{{ row.test }}</td>{% for cell in row.figures %}<td{% if cell == "-" %} class="none"{% endif %}>{{ cell }}</td>
{%- endfor %}<td{% if row.is_gain %} class="gain"{% elif row.is_loss %} class="loss"{% endif %}>{{ row.gain }}</td>
<td>{{ row.note }}</td></tr>
{% endfor -%}
</tbody></table></div>
{% if paragraphs %}<ul>{% for text in paragraphs %}<li>{{ text }}</li>{% endfor %}</ul>{% endif %}
</details>
</section>

<section>
<h2>What would change this answer</h2>
<ul>{% for text in words.changes %}<li>{{ text }}</li>{% endfor %}</ul>
</section>

<section>
<h2>{{ "How to use it" if useful else "The best that was found" }}</h2>
<p><code>{{ words.command }}</code></p>
<p>What left a {{ words.site }}: models and their changes, sums of test results, and for tables counts, means and
spreads of columns; for the search for groups also a compressed change of the model for each of a few parts of its
records. No record.</p>
</section>

<section>
<details>
<summary>Terms</summary>
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
<dt>discovery, CLoVE</dt><dd>Groups of {{ words.site }}s are found during training, each with its own model.</dd>
<dt>Local-only</dt><dd>Each {{ words.site }} trains on its own records alone.</dd>
</dl>
</details>
</section>

<footer>Written by Florets. The runs behind this page are in the folders beside it, each with its own report.</footer>
</main>
</body>
</html>
"""


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
