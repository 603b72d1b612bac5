"""The page of `florets watch`, as Jinja templates: its frame, and the part that is replaced as the run goes on.

Strings in a module, as the report's and for the same reason. The style comes on top of the report's.
"""

WATCH_STYLE = """
:root { color-scheme: light dark; --heat: 0 114 178; --bad: #a33a00; --warn: #b45309; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --quiet: #a3b0bd; --line: #343e48; --paper: #1b2229; --ground: #12171c; --accent: #56b4e9;
    --good: #3fbf8f; --heat: 86 180 233; --bad: #ff9c66; --warn: #e0a34a; }
}
.warning { border-left-color: var(--warn); }
td.amiss { color: var(--bad); }
td.none { color: var(--quiet); }
a { color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
header p.path { font-size: .84rem; overflow-wrap: anywhere; }
.bar { height: .5rem; margin: .6rem 0 0; border-radius: 4px; background: var(--line); overflow: hidden; }
.bar div { height: 100%; background: var(--accent); }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; max-width: 62rem; margin: 0 auto;
  padding: .7rem 1.2rem 0; color: var(--quiet); font-size: .84rem; }
.controls button { font: inherit; min-height: 2.4rem; padding: .3rem .9rem; color: var(--ink);
  background: var(--paper); border: 1px solid var(--quiet); border-radius: 6px; cursor: pointer; }
.controls p { margin: 0; }
main { padding-top: 1rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem 1.5rem; }
figure { margin: 0; }
figcaption { font-size: .92rem; font-weight: 600; margin-bottom: .3rem; }
figure svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--quiet); font-size: 14px; font-variant-numeric: tabular-nums; }
svg text.end { fill: var(--accent); font-weight: 700; font-size: 15px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .curve { fill: none; stroke: var(--accent); stroke-width: 2.2; stroke-linejoin: round; }
svg .mark { fill: var(--accent); }
svg .band { fill: var(--accent); opacity: .16; }
.groups { display: grid; gap: .7rem; }
.groups h3 { margin: 0 0 .25rem; font-size: .92rem; }
.groups h3 span { font-weight: 400; color: var(--quiet); }
ul.chips { display: flex; flex-wrap: wrap; gap: .3rem; list-style: none; margin: 0; padding: 0; }
ul.chips li { max-width: 100%; padding: .08rem .5rem; border: 1px solid var(--line); border-radius: 5px;
  font-size: .84rem; overflow-wrap: anywhere; background: var(--ground); font-variant-numeric: tabular-nums; }
ul.chips li.moved { border: 2px solid var(--accent); font-weight: 650; }
ul.moves { margin: 0; padding: 0; list-style: none; font-size: .92rem; }
ul.moves li { padding: .2rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
ul.moves li:last-child { border-bottom: 0; }
section > p.rejected { margin: .6rem 0 0; overflow-wrap: anywhere; }
h2.second { margin-top: 1.2rem; }
table.heat { border-collapse: separate; border-spacing: 1px; }
table.heat th, table.heat td { border: 0; padding: .1rem .35rem; }
table.heat th.cell { padding: .1rem 0; text-align: center; }
table.heat td.cell { min-width: 1.5rem; height: 1.25rem; padding: 0; text-align: center;
  background: rgb(var(--heat) / var(--s)); border-radius: 2px; }
.legend { display: inline-block; width: 6rem; height: .7rem; border-radius: 3px; vertical-align: middle;
  background: linear-gradient(to right, rgb(var(--heat) / .06), rgb(var(--heat) / .92)); }
@media (max-width: 40rem) { .controls { padding: .7rem .7rem 0; } svg text { font-size: 17px; }
  svg text.end { font-size: 18px; } }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} (Florets)</title>
<link rel="icon" href="data:,">
<noscript><meta http-equiv="refresh" content="5"></noscript>
<style>{{ style }}</style>
</head>
<body>
<div class="controls"><button id="pause" type="button" aria-pressed="false">Pause</button>
<p id="link" role="status"></p></div>
<main id="main">{{ main }}</main>
<script nonce="{{ nonce }}">
"use strict";
const main = document.getElementById("main"), link = document.getElementById("link");
const pause = document.getElementById("pause");
let paused = false, lost = 0, tag = "";
const places = () => new Map([...main.querySelectorAll("[id]")].map(
  (part) => [part.id, { open: part.open, left: part.scrollLeft }]));
async function refresh() {
  if (paused || document.hidden) return;
  try {
    const answer = await fetch("/main", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (lost) { lost = 0; link.textContent = ""; }
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag") || "";
    const text = await answer.text(), before = places(), focused = document.activeElement.id || "main";
    main.innerHTML = text;
    for (const [id, was] of before) {
      const part = document.getElementById(id);
      if (!part) continue;
      if (part.tagName === "DETAILS") part.open = was.open;
      part.scrollLeft = was.left;
    }
    if (document.activeElement.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
  } catch {
    if (++lost === 2) link.textContent = "florets watch has ended; this is the last state that it showed.";
  }
}
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
  link.textContent = paused ? "Paused: the page is not refreshed." : "";
  refresh();
});
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, 2000);
</script>
</body>
</html>
"""

MAIN = """<header>
{% if names.strategy %}
<p>{{ names.strategy }}, seed {{ names.seed }}, preset {{ names.experiment }}</p>
{% endif %}
<h1>{{ names.task or "No run yet" }}</h1>
<p class="path">{{ folder }}</p>
<p class="verdict{{ ' good' if status == 'finished' else '' }}">{{ words }}
{%- if status == "finished" %} <a id="report" href="/report.html">The report</a>{% endif %}</p>
{% if total %}
<div class="bar" role="progressbar" aria-label="rounds" aria-valuemin="0" aria-valuemax="{{ total }}"
aria-valuenow="{{ done }}"><div style="width: {{ [100 * done / total, 100] | min | round(1) }}%"></div></div>
{% endif %}
{% if reason %}<p class="warning">{{ reason }}</p>{% endif %}
{% for warning in warnings %}
<p class="warning">Warning: {{ warning }}.</p>
{% endfor %}
</header>

{% if tiles %}
<dl class="tiles">
{% for tile in tiles -%}
<div><dt>{{ tile.name }}</dt><dd>{{ tile.value }}</dd><dd class="note">{{ tile.note }}</dd></div>
{% endfor -%}
</dl>
{% endif %}

{% if curves %}
<section>
<h2>Over the rounds</h2>
<div class="charts">
{% for one in curves %}
<figure><figcaption>{{ one.title }}{% if one.band %} (band: ± std){% endif %}</figcaption>{{ one.picture }}</figure>
{% endfor %}
</div>
</section>
{% endif %}

{% if groups %}
<section>
<h2>Groups</h2>
<div class="groups">
{% for group in groups %}
<div><h3>model {{ group.model }} <span>{{ counted(group.size, "client") }}</span></h3>
{% if group.members %}
<ul class="chips">
{% for member in group.members -%}
{% if member.move -%}
<li class="moved">{{ member.name }} (from {{ member.move.before }})</li>
{% else -%}
<li>{{ member.name }}</li>
{% endif -%}
{% endfor %}
</ul>
{% endif %}
</div>
{% endfor %}
</div>
{% if moves %}
<h2 class="second">Who moved</h2>
<ul class="moves">
{% for round in moves %}
<li>Round {{ round.round }}:
{% for move in round.moves %}{{ move.client }} from {{ move.before }} to {{ move.now }}
{%- if not loop.last %}, {% endif %}{% endfor %}
{%- if round.more %}, and {{ round.more }} more{% endif %}</li>
{% endfor %}
</ul>
{% endif %}
</section>
{% endif %}

{% if losses %}
<section>
<h2>Losses</h2>
<p>The {{ losses.kind }} of each client in its group's model, over the last rounds:
{{ losses.low }} <span class="legend"></span> {{ losses.high }}; ! diverged.
{%- if losses.left_out %} Shown are the {{ losses.rows | length }} clients with the
highest; {{ losses.left_out }} more have lower ones.{% endif %}</p>
<div class="wide" id="heat" tabindex="0" role="region" aria-label="Losses by client and round"><table class="heat">
<thead><tr><th scope="col">client</th><th scope="col">model</th>
<th scope="col">last</th>{% for round in losses.rounds %}<th scope="col" class="cell">
{{- round if loop.index0 % 5 == 0 }}</th>{% endfor %}
</tr></thead>
<tbody>
{% for row in losses.rows -%}
<tr><th scope="row" title="{{ row.client }}">{{ row.name }}</th><td>{{ row.model }}</td>
<td>{{ row.last }}</td>
{%- for cell in row.cells %}
<td class="cell" style="--s: {{ cell.shade }}" title="{{ cell.title }}">{{ cell.mark }}</td>
{%- endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</section>
{% endif %}

{% if replies %}
<section>
<h2>Replies</h2>
<div class="columns">
<div class="wide" id="outcomes" tabindex="0" role="region" aria-label="Replies by outcome"><table>
<caption>All rounds</caption>
<thead><tr><th scope="col">outcome</th><th scope="col">replies</th></tr></thead>
<tbody>
{% for reply in replies -%}
<tr><th scope="row">{{ reply.name }}</th>
<td{% if reply.amiss %} class="amiss"{% endif %}>{{ reply.count }}</td></tr>
{% endfor -%}
</tbody></table></div>
{% if troubles %}
<div class="wide" id="troubles" tabindex="0" role="region" aria-label="Failed replies by client"><table>
<caption>Clients with replies that failed</caption>
<thead><tr><th scope="col">client</th><th scope="col">replies</th></tr></thead>
<tbody>
{% for client, number in troubles -%}
<tr><th scope="row">{{ client }}</th><td class="amiss">{{ number }}</td></tr>
{% endfor -%}
</tbody></table></div>
{% endif %}
</div>
{% for round, client, why in rejected %}
<p class="rejected">Round {{ round }}: {{ client }} was rejected: {{ why }}</p>
{% endfor %}
</section>
{% endif %}

<footer>State at {{ time }}. Shown by florets watch, from the files in the run's folder.</footer>
"""
