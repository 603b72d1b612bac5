"""Pages: one HTML file each, readable without a server; the frame, the style and the parts that all of them share.

Templates are strings in modules: Flower packs only a few kinds of files into an app, neither ``.html`` nor ``.j2``.
"""

from __future__ import annotations

import base64
import html
import sys
import webbrowser
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florets.reports.console import say

if TYPE_CHECKING:
    from jinja2 import Template

CSS = """
:root { color-scheme: light; --ink: #1f2933; --quiet: #5a6673; --line: #e3e8ed; --paper: #fff; --ground: #f5f7f9;
  --accent: #0072b2; --good: #00734f; --warn: #b45309; --bad: #a33a00; --faint: #a9b3bd; --shade: 0 114 178; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", "Liberation Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
header p { margin: 0; color: var(--quiet); }
h1 { margin: .1rem 0 .2rem; font-size: 1.75rem; line-height: 1.25; letter-spacing: -.01em; }
h2 { margin: 0 0 .7rem; font-size: 1.1rem; }
.verdict, .warning { margin: .5rem 0 0; padding: .7rem 1rem; background: var(--paper); color: var(--ink);
  border-left: 4px solid var(--accent); border-radius: 4px; overflow-wrap: anywhere; }
.verdict { margin-top: 1rem; }
.warning { border-color: var(--warn); }
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
section > p.found { color: var(--ink); font-size: 1rem; overflow-wrap: anywhere; }
section ul { margin: 0; padding-left: 1.2rem; }
section li { margin: .3rem 0; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
table.full { width: 100%; }
caption { text-align: left; color: var(--quiet); font-size: .84rem; padding-bottom: .3rem; }
th { font-weight: 600; color: var(--quiet); }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; }
tbody th { font-weight: 400; color: var(--ink); }
tr:last-child > * { border-bottom: 0; }
table.confusion td { min-width: 2.2rem; text-align: center; border: 2px solid var(--paper); border-radius: 5px; }
table.confusion thead th { text-align: center; white-space: normal; }
td[style] { background: rgb(var(--shade) / var(--s)); }
td.amiss { color: var(--bad); font-weight: 600; }
td.none { color: var(--faint); }
details > summary { cursor: pointer; font-weight: 600; }
details[open] > summary { margin-bottom: .8rem; }
pre { margin: 0; padding: .9rem; overflow-x: auto; background: var(--ground); border-radius: 6px;
  font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
footer { color: var(--quiet); font-size: .84rem; }
@media (max-width: 40rem) { main { padding: 1.2rem .7rem 2rem; } section { padding: .9rem .8rem; }
  h1 { font-size: 1.4rem; } th, td { padding: .28rem .4rem; } table.confusion { width: 100%; } }
"""

_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }} (Florets)</title>
{% block head %}{% endblock %}
<style>{{ css | safe }}{% block css %}{% endblock %}</style>
</head>
<body>
{% block body %}
<main>
<header>
{% if above %}<p>{{ above }}</p>{% endif %}
<h1>{{ title }}</h1>
{% block header %}{% endblock %}
</header>
{% block main %}{% endblock %}
<footer>{% block footer %}{% endblock %}</footer>
</main>
{% endblock %}
</body>
</html>
"""

_PARTS = """
{% macro tiles(tiles) %}
<dl class="tiles">
{% for name, value, note in tiles -%}
<div><dt>{{ name }}</dt><dd>{{ value }}</dd>{% if note %}<dd class="note">{{ note }}</dd>{% endif %}</div>
{% endfor -%}
</dl>
{% endmacro %}

{% macro warnings(texts) %}
{% for text in texts %}<p class="warning">Warning: {{ text }}.</p>
{% endfor %}
{% endmacro %}

{% macro section(title, note="", shown=true) %}
{% if shown %}
<section>
<h2>{{ title }}</h2>
{% if note %}<p>{{ note }}</p>{% endif %}
{{ caller() }}
</section>
{% endif %}
{% endmacro %}

{% macro folded(title, open=false) %}
<section>
<details{% if open %} open{% endif %}>
<summary>{{ title }}</summary>
{{ caller() }}
</details>
</section>
{% endmacro %}

{% macro image(picture, alt) %}
<img src="data:image/png;base64,{{ picture.data }}" width="{{ picture.width }}" alt="{{ alt }}">
{% endmacro %}

{% macro cell(of, tag, scope) %}
{%- set is_plain = of is string or of is number -%}
{%- set given = {"class": "none" if of == "-" and tag == "td" else none} if is_plain else of[1] -%}
<{{ tag }}{{ {"scope": scope} | xmlattr }}{{ given | xmlattr }}>{{ of if is_plain else of[0] }}</{{ tag }}>
{%- endmacro %}

{% macro table(rows, kind="", caption="", id="", label="") %}
<div class="wide"
{%- if label %}{{ {"id": id, "tabindex": 0, "role": "region", "aria-label": label} | xmlattr }}{% endif %}>
<table{% if kind %} class="{{ kind }}"{% endif %}>
{% if caption %}<caption>{{ caption }}</caption>{% endif %}
<thead><tr>{% for of in rows[0] %}{{ cell(of, "th", "col") }}{% endfor %}</tr></thead>
<tbody>
{% for row in rows[1:] -%}
<tr>{{ cell(row[0], "th", "row") }}{% for of in row[1:] %}{{ cell(of, "td", none) }}{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
{% endmacro %}
"""
_MACROS = ("tiles", "warnings", "section", "folded", "image", "table")

Cell = str | int | tuple[str, dict[str, str]]
"""Place of a table: its text, or its text and attributes; a dash is quiet."""


@cache
def _template(text: str) -> Template:
    from jinja2 import DictLoader, Environment, StrictUndefined

    # Names of clients come from other machines: autoescape keeps them text.
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=DictLoader({"page": _FRAME})
    )
    parts = made.from_string(_PARTS).module
    made.globals |= {name: getattr(parts, name) for name in _MACROS}
    return made.from_string(text)


def render(template: str, **values: Any) -> str:
    """Return a template with its values filled in.

    That of a whole page extends ``page``, with blocks `css`, `header`, `main` and `footer`, and values `name` (of the
    window), `above` and `title`. All may use the macros `tiles`, `warnings`, `section`, `folded`, `image` and
    `table`, whose rows consist of `Cell`, the first row the head.
    """
    return _template(template).render(css=CSS, **values)


def shaded(text: str, part: float, **attributes: str) -> Cell:
    """Return a cell that is the darker, the larger a part in [0, 1]."""
    return text, {"style": f"--s: {part:.2f}", **attributes}


def embedded(path: Path) -> dict[str, Any]:
    """Return a picture as it goes into a page: its data in base64, and its width in pixels of the page."""
    png = path.read_bytes()
    # The header of a PNG has its width in bytes 16 to 19; 1.5 dots for each pixel of the page keep it sharp.
    return {"data": base64.b64encode(png).decode("ascii"), "width": int.from_bytes(png[16:20], "big") * 2 // 3}


# Pages in a notebook, in a browser, or as text on a screen


class Paged:
    """A result in a folder, with a page that a notebook, a browser or, as text, the screen shows."""

    def __init__(self, folder: Path | str, page: str) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.page = self.folder / page

    @property
    def text(self) -> str:
        """The result in words, as the command prints it."""
        raise NotImplementedError

    def show(self) -> None:
        """Display the page in a notebook; elsewhere print the text and, on a terminal, open the page."""
        ipython = sys.modules.get("IPython")
        if ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell":
            ipython.display.display(self)
            return
        say(self.text)
        if sys.stdout.isatty():
            webbrowser.open(self.page.as_uri())

    def _repr_html_(self) -> str:
        # Within a frame, whose style the page does not take from the notebook.
        source = html.escape(self.page.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{source}" style="width: 100%; height: 820px; border: 0"></iframe>'
