"""The page that shows a partition: one HTML file with its pictures inside, and its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined

from florets.server_app.results.report_template import STYLE

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} (Florets)</title>
<style>{{ style | safe }}</style>
</head>
<body>
<main>
<header>
<p>{{ above }}</p>
<h1>{{ title }}</h1>
</header>
<dl class="tiles">
{% for name, value, note in tiles -%}
<div><dt>{{ name }}</dt><dd>{{ value }}</dd>
{%- if note %}<dd class="note">{{ note }}</dd>{% endif %}</div>
{% endfor -%}
</dl>
{% for picture in pictures %}
<section>
<h2>{{ picture.heading }}</h2>
<p>{{ picture.note }}</p>
<div class="wide"><img src="data:image/png;base64,{{ picture.data }}" width="{{ picture.width }}"
alt="{{ picture.heading }}"></div>
</section>
{% endfor %}
{% for table in tables %}
<section>
<h2>{{ table.heading }}</h2>
{% if table.note %}<p>{{ table.note }}</p>{% endif %}
<div class="wide"><table class="clients">
<thead><tr>{% for name in table.rows[0] %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in table.rows[1:] -%}
<tr>{% for cell in row %}<td{% if cell == "-" %} class="none"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
</section>
{% endfor %}
<section>
<details>
<summary>Settings of the task</summary>
<pre>{{ config }}</pre>
</details>
</section>
<footer>Written by Florets. The numbers behind this page are in partition.csv, beside it.</footer>
</main>
</body>
</html>
"""


def page(
    title: str,
    above: str,
    tiles: Sequence[tuple[str, str, str]],
    pictures: Sequence[Mapping[str, Any]],
    tables: Sequence[Mapping[str, Any]],
    config: str,
) -> str:
    """Return the page.

    Parameters
    ----------
    title, above
        Heading, and the line above it.
    tiles
        Name, value and note of each figure.
    pictures
        As `florets.server_app.results.report.embedded` has them, with ``heading`` and ``note``.
    tables
        ``heading``, ``note`` and ``rows``, the first of which is the head.
    config
        Settings of the task.
    """
    # Names of clients and owners come from files: autoescape keeps them text.
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(_PAGE)
    return template.render(
        style=STYLE, title=title, above=above, tiles=tiles, pictures=pictures, tables=tables, config=config
    )
