"""The page of an advice, as a Jinja template; see `results.report_template` for why it is a string."""

STYLE = """
.answer { font-size: 1.12rem; }
ul.why { margin: .9rem 0 0; padding-left: 1.2rem; }
ul.why li { margin: .25rem 0; }
table.methods { width: 100%; font-size: .88rem; }
table.methods td:first-child, table.methods th:first-child { white-space: normal; min-width: 13rem; }
table.methods th, table.methods td:last-child { white-space: normal; }
table.methods tr.chosen > * { background: #eaf4fb; font-weight: 600; }
table.sites { width: 100%; }
svg.dots { display: block; width: 100%; min-width: 38rem; height: auto; }
svg.dots text { font: 12px -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2933; }
svg.dots .tick { fill: #5a6673; font-size: 11px; }
svg.dots .grid { stroke: #e3e8ed; }
svg.dots .site { fill: #0072b2; fill-opacity: .38; }
svg.dots .mean { stroke: #1f2933; stroke-width: 2.5; }
svg.dots .is-chosen { font-weight: 700; }
code { font: .9rem ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
section ul { margin: 0; padding-left: 1.2rem; }
section li { margin: .3rem 0; }
dl.terms dt { font-weight: 600; margin-top: .6rem; }
dl.terms dd { margin: 0; color: var(--quiet); }
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
<h1>What should these {{ words.sites(finding.num_clients) }} use?</h1>
<p class="verdict good answer">{{ words.answer }}</p>
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
<p>Every method had {{ rounds }} on the same records. Each {{ words.site }}'s records were split in three: to
train on, to choose the method by ({{ validation }}), and to test the choice. Figures are of the
test records, which had no part in the choice. A dot is a {{ words.site }}, a bar the mean.</p>
<div class="wide"><svg class="dots" viewBox="0 0 {{ chart.width }} {{ chart.height }}" role="img"
aria-label="Test result of every {{ words.site }} under every method">
{% for tick in chart.ticks -%}
<line class="grid" x1="{{ tick.x }}" x2="{{ tick.x }}" y1="4" y2="{{ chart.bottom }}"/>
<text class="tick" x="{{ tick.x }}" y="{{ chart.bottom + 16 }}" text-anchor="middle">{{ tick.text }}</text>
{% endfor -%}
{% for row in chart.rows -%}
<text x="0" y="{{ row.y + 4 }}"{% if row.chosen %} class="is-chosen"{% endif %}>{{ row.title }}</text>
{% for dot in row.dots -%}
<circle class="site" cx="{{ dot.x }}" cy="{{ row.y }}" r="5"><title>{{ dot.title }}</title></circle>
{% endfor -%}
{% if row.mean %}
<line class="mean" x1="{{ row.mean }}" x2="{{ row.mean }}" y1="{{ row.y - 9 }}" y2="{{ row.y + 9 }}"/>
{% endif %}
{% endfor -%}
</svg></div>
<div class="wide"><table class="methods">
<thead><tr><th scope="col">method</th><th scope="col">{{ figure }}, mean</th>
<th scope="col">compared with the advised</th>
<th scope="col">worst {{ words.site }}</th><th scope="col">sent and received, time</th>
</tr></thead>
<tbody>
{% for row in methods -%}
<tr{% if row.chosen %} class="chosen"{% endif %}>
<td>{{ row.title }}</td><td>{{ row.mean }}</td><td>{{ row.gain }}</td>
<td>{{ row.worst }}</td><td>{{ row.cost }}</td></tr>
{% endfor -%}
</tbody></table></div>
<p>{{ words.interval }}{% if fine_tuned %} Fine-tuning is one local training more than the other methods have
({{ epochs }} passes over the records, at the end).{% endif %}</p>
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
<div class="wide"><table class="sites">
<thead><tr>{% for name in site_head %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in sites -%}
<tr>{% for cell in row %}<td{% if cell == "-" %} class="none"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</details>
</section>

<section>
<h2>What would change this answer</h2>
<ul>{% for text in words.changes %}<li>{{ text }}</li>{% endfor %}</ul>
</section>

<section>
<h2>How to use it</h2>
<p><code>{{ command }}</code></p>
<p>What left a {{ words.site }}: models and their changes, and figures of tests; for the search for groups also a
compressed change of the model for each of a few parts of its records. No record, and no mean or range of a
column.</p>
</section>

<section>
<details>
<summary>Words</summary>
<dl class="terms">
<dt>p</dt><dd>How often {{ words.site }}s that do not differ at all would look as different as these do. Groups are
claimed at 0.005 or less: once in 200 times by mistake.</dd>
<dt>{{ figure }}</dt><dd>{{ figure_words }}</dd>
<dt>FedAvg</dt><dd>Everybody trains one model in turns; the server averages what comes back.</dd>
<dt>fine-tuning</dt><dd>Everybody trains a copy of that model on its own records at the end, and keeps the copy.</dd>
<dt>discovery, CLoVE</dt><dd>Groups of {{ words.site }}s are found while training, each with a model of its own.</dd>
<dt>Local-only</dt><dd>Everybody trains on its own records alone.</dd>
</dl>
</details>
</section>

<footer>Written by Florets. The runs behind this page are in the folders beside it, each with its own report.</footer>
</main>
</body>
</html>
"""
