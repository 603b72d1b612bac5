"""The page of a run's report, as a Jinja template.

It is a string in a module, not a file of its own: Flower packs only a few kinds of files into an app (no
``.html``, no ``.j2``), and a run through ``flwr run`` would not find it.
"""

CSS = """
:root { color-scheme: light; --ink: #1f2933; --quiet: #5a6673; --line: #e3e8ed; --paper: #fff;
  --ground: #f5f7f9; --accent: #0072b2; --good: #00734f; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", "Liberation Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
header p { margin: 0; color: var(--quiet); }
h1 { margin: .1rem 0 .2rem; font-size: 1.75rem; line-height: 1.25; letter-spacing: -.01em; }
h2 { margin: 0 0 .7rem; font-size: 1.1rem; }
.verdict { margin: 1rem 0 0; padding: .7rem 1rem; background: var(--paper); border-left: 4px solid var(--accent);
  border-radius: 4px; color: var(--ink); }
.warning { margin: .5rem 0 0; padding: .7rem 1rem; background: var(--paper); border-left: 4px solid #b45309;
  border-radius: 4px; }
.verdict.good { border-color: var(--good); }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem;
  margin: 1.2rem 0; }
dl.tiles div { display: flex; flex-direction: column; background: var(--paper); border: 1px solid var(--line);
  border-radius: 8px; padding: .75rem .9rem; }
dl.tiles dt { color: var(--quiet); font-size: .84rem; }
dl.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; }
dl.tiles dd.note { font-size: .84rem; font-weight: 400; color: var(--quiet); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 1.1rem 1.2rem;
  margin: 0 0 1rem; }
section > p, details > p { margin: 0 0 .8rem; color: var(--quiet); font-size: .92rem; }
section > p.found { color: var(--ink); font-size: 1rem; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.wide { overflow-x: auto; }
.columns { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1.4rem 2.5rem; }
.columns table { flex: 1 1 14rem; }
.columns table:last-child { flex: 0 1 10rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
table.clients { width: 100%; }
caption { text-align: left; color: var(--quiet); font-size: .84rem; padding-bottom: .3rem; }
th { font-weight: 600; color: var(--quiet); }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; }
tbody th { font-weight: 400; color: var(--ink); }
tr:last-child > * { border-bottom: 0; }
table.confusion td { min-width: 2.2rem; text-align: center; border: 2px solid var(--paper); border-radius: 5px; }
table.confusion thead th { text-align: center; white-space: normal; }
.wide th:first-child, .wide td:first-child { position: sticky; left: 0; background: var(--paper); }
td.amiss { color: #a33a00; font-weight: 600; }
td.none { color: #a9b3bd; }
details > summary { cursor: pointer; font-weight: 600; }
details[open] > summary { margin-bottom: .8rem; }
pre { margin: 0; padding: .9rem; overflow-x: auto; background: var(--ground); border-radius: 6px;
  font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
footer { color: var(--quiet); font-size: .84rem; }
@media (max-width: 40rem) { main { padding: 1.2rem .7rem 2rem; } section { padding: .9rem .8rem; }
  h1 { font-size: 1.4rem; } th, td { padding: .28rem .4rem; } table.confusion { width: 100%; } }
@media print { body { background: #fff; } section, dl.tiles div { break-inside: avoid; } }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ summary.experiment }} {{ summary.strategy }} seed {{ summary.seed }} (Florets)</title>
<style>{{ style | safe }}</style>
</head>
<body>
<main>
<header>
<p>{{ summary.strategy }}, seed {{ summary.seed }}{% if title %}, preset {{ summary.experiment }}{% endif %}</p>
<h1>{{ title or summary.experiment }}</h1>
{% if verdict %}<p class="verdict{{ ' good' if recovered else '' }}">{{ verdict }}</p>{% endif %}
{% for warning in summary.warnings %}
<p class="warning">Warning: {{ warning }}.</p>
{% endfor %}
</header>

<dl class="tiles">
{% for tile in tiles -%}
<div><dt>{{ tile.name }}</dt><dd>{{ tile.value }}</dd>
{%- if tile.note %}<dd class="note">{{ tile.note }}</dd>{% endif %}</div>
{% endfor -%}
</dl>

{% if curves %}
<section>
<h2>Over the rounds</h2>
<img src="data:image/png;base64,{{ curves.data }}" width="{{ curves.width }}"
alt="Curves over the rounds: adjusted Rand index and test result">
</section>
{% endif %}

{% if found %}
<section>
<h2>Are there groups?</h2>
<p class="found">{{ found[0] | upper }}{{ found[1:] }}.</p>
{% if discovery %}
<p>Left: for every number of groups K, how well groups formed on some of the clients' data predict what the clients
learn from the rest (1 = exactly, 0 = not at all). Groups are claimed where the best score is higher than chance
gives. Right: how alike what two clients learned is, clients sorted by group.</p>
<img src="data:image/png;base64,{{ discovery.data }}" width="{{ discovery.width }}"
alt="Score over the number of groups, and similarity of every pair of clients">
{% endif %}
</section>
{% endif %}

{% if spectrum %}
<section>
<h2>What was clustered</h2>
<p>Above: each client's features in some rounds, in the three directions in which they differ most, drawn obliquely.
Below: the singular values of what clients sent until then; the features belong to the largest.</p>
<img src="data:image/png;base64,{{ spectrum.data }}" width="{{ spectrum.width }}"
alt="Features of the clients by true cluster, and singular values">
</section>
{% endif %}

{% if confusion %}
<section>
<h2>Clusters</h2>
<p>{{ confusion.note }}</p>
<div class="wide"><table class="confusion">
<thead><tr><th scope="col">{{ confusion.corner }}</th>
{%- for model in confusion.models %}<th scope="col">
{{- "model " if confusion.models | length <= 8 }}{{ model }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in confusion.rows -%}
<tr><th scope="row">{{ row.name }}</th>
{%- for cell in row.cells %}
<td style="background: rgba(0, 114, 178, {{ cell.shade }})">{{ cell.text }}</td>
{%- endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</section>
{% endif %}

{% if heatmap %}
<section>
<h2>Losses</h2>
<p>At the end of the run: the lower the loss, the better the model fits the client.</p>
<img src="data:image/png;base64,{{ heatmap.data }}" width="{{ heatmap.width }}"
alt="Heatmap of the loss of every model on every client">
</section>
{% endif %}

{% if scores %}
<section>
<h2>Tests</h2>
<p>Figures over the clients at the end of the run; weighted: by test samples, worst tenth: mean of the worst 10 %.</p>
<div class="wide"><table class="clients">
<thead><tr>{% for name in scores[0] %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in scores[1:] -%}
<tr>{% for cell in row %}<td{% if cell == "-" %} class="none"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</section>
{% endif %}

{% if predictions %}
<section>
<details>
<summary>Predictions of each model</summary>
<p>Test samples of the model's clients: their labels (rows), and what the model says (columns).</p>
<div class="columns">
{% for table in predictions %}
<div class="wide"><table class="confusion">
<caption>{{ table.note }}</caption>
<thead><tr><th></th>{% for label in table.labels %}<th scope="col">{{ label }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows -%}
<tr><th scope="row">{{ row.name }}</th>
{%- for cell in row.cells %}
<td style="background: rgba(0, 114, 178, {{ cell.shade }})">{{ cell.text }}</td>
{%- endfor %}</tr>
{% endfor -%}
</tbody></table></div>
{% endfor %}
</div>
</details>
</section>
{% endif %}

<section>
<h2>Time, traffic, replies</h2>
<div class="columns">
<div class="wide"><table>
<caption>Seconds, by part of the round</caption>
<thead><tr>
<th scope="col">part</th><th scope="col">all rounds</th><th scope="col">per round</th><th scope="col">share</th>
</tr></thead>
<tbody>
{% for part in parts -%}
<tr><th scope="row">{{ part.name }}</th>
<td>{{ part.total }}</td>
<td>{{ part.per_round }}</td>
<td>{{ part.share }}</td></tr>
{% endfor -%}
</tbody></table></div>
<div class="wide"><table>
<caption>Per round, by phase</caption>
<thead><tr>
<th scope="col">phase</th>
<th scope="col">rounds</th>
<th scope="col">down</th>
<th scope="col">up</th>
<th scope="col">seconds</th>
</tr></thead>
<tbody>
{% for phase in phases -%}
<tr><th scope="row">{{ phase.name }}</th>
<td>{{ phase.rounds }}</td>
<td>{{ phase.down }}</td>
<td>{{ phase.up }}</td>
<td>{{ phase.seconds }}</td></tr>
{% endfor -%}
</tbody></table></div>
<div class="wide"><table>
<caption>Replies, all rounds</caption>
<thead><tr><th scope="col">outcome</th><th scope="col">replies</th></tr></thead>
<tbody>
{% for reply in replies -%}
<tr><th scope="row">{{ reply.name }}</th>
<td{% if reply.amiss %} class="amiss"{% endif %}>{{ reply.count }}</td></tr>
{% endfor -%}
</tbody></table></div>
</div>
</section>

<section>
<details{% if num_clients <= 40 %} open{% endif %}>
<summary>Clients ({{ num_clients }})</summary>
{% if num_clients > clients | length -%}
<p>The first {{ clients | length }} of them; all are in clients.csv, beside this page.</p>
{% endif -%}
<div class="wide"><table class="clients">
<thead><tr>{% for name in client_head %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for client in clients -%}
<tr>{% for cell in client %}<td{% if cell == "-" %} class="none"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</details>
</section>

<section>
<details>
<summary>Settings</summary>
<pre>{{ config }}</pre>
</details>
</section>

<footer>Written by Florets. The figures behind this page are in the files beside it.</footer>
</main>
</body>
</html>
"""
