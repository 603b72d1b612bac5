"""Hooks of the site's build: pages from other folders, links, equations, what is written from code and data."""

import html
import importlib
import inspect
import os
import posixpath
import re
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import florets
from florets.commands.help import Row, keys_of_strategy, reference
from florets.commands.main import WORDS, help_on
from florets.conf.presets import choices
from florets.strategies import STRATEGIES
from florets.strategies.registry import find_strategy
from florets.task.node_config import ALL_CAPS

if TYPE_CHECKING:
    # With the extra `docs` alone.
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

_IN_SITE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "SECURITY.md": "security.md",
    "examples/baselines/README.md": "examples/baselines.md",
    "examples/own_strategy/README.md": "examples/own_strategy.md",
}
"""Pages outside docs/, and their places in the site; those in papers/ keep theirs."""

_written = set[str | None]()
"""The methods that pages had."""

_package = tempfile.TemporaryDirectory()
"""The package as an installed wheel has it, for mkdocstrings, which reads files and not imports."""


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Show mkdocstrings the package, before it looks for it."""
    package = Path(_package.name) / "florets"
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]:
        for source in (ROOT / name).rglob("*.py"):
            place = package / source.relative_to(ROOT / name if name == "florets" else ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            # Folders without this file are no packages to it, and a name that leads to itself leads nowhere.
            (place.parent / "__init__.py").touch()
            text = source.read_text(encoding="utf-8").replace("from florets import strategies\n", "pass\n")
            place.write_text(text, encoding="utf-8")
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_package.name]
    return config


# Before the plugins.
on_config.mkdocs_priority = 100  # type: ignore[attr-defined]


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that lie outside docs/, and the pictures of those in papers/."""
    from mkdocs.structure.files import File

    places = {name: place for name, place in _IN_SITE.items() if (ROOT / name).exists()}
    places |= {f"papers/{page.name}": f"papers/{page.name}" for page in (ROOT / "papers").glob("*.md")}
    for name in [name for name in places if name.startswith("papers/")]:
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            path = f"papers/{picture}"
            places[path] = path
    for name, place in places.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Turn a page as a repository's host shows it into one of the site."""
    if page.file.src_uri == "papers/leaderboard.md":
        # Its tables need the width.
        page.meta["hide"] = ["toc"]
    parts = re.split(r"(?ms)^([ ]*```.*?^[ ]*```[ ]*$)", markdown)
    return "".join(_fence(part) if place % 2 else _prose(part, page, files) for place, part in enumerate(parts))


on_page_markdown.mkdocs_priority = 100  # type: ignore[attr-defined]


def _fence(block: str) -> str:
    """Keep the language of a block of code; a file's name becomes its title, what tests read goes."""
    first, rest = block.split("\n", 1)
    _, language, how = re.fullmatch(r"( *```)(\S*) ?(.*)", first).groups()  # type: ignore[union-attr]
    title = f' title="{how}"' if "." in how else ""
    return f"```{language}{title}\n{rest}"


def _prose(text: str, page: "Page", files: "Files") -> str:
    text = re.sub(r"<!-- (?:before|prints): .*? -->\n?", "", text)
    text = text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    # A list may follow a line at once on the host, and two spaces nest it; here it takes an empty line, and four.
    text = re.sub(r"(?m)^(?![-*] |\s|\|)(.+)\n(?=- )", r"\1\n\n", text)
    text = re.sub(r"(?m)^ +(?=\S)", lambda found: found[0] * 2, text)
    # Pictures first, because one may be a link's text.
    for pattern in (r"(!)\[([^][]*)\]\(([^)\s]+)\)", r"((?<!!))\[((?:[^][]|\[[^][]*\])*)\]\(([^)\s]+)\)"):
        text = re.sub(pattern, lambda found: _link(found, page, files), text)
    return re.sub(r"<!-- (\w+)(?:: (\w+))? -->", _marker, text)


def _link(found: re.Match[str], page: "Page", files: "Files") -> str:
    """Lead a link to the page of the site, else to the file in the repository, else nowhere."""
    picture, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return found[0]
    own = {place: name for name, place in _IN_SITE.items()}.get(page.file.src_uri, page.file.src_uri)
    own = own if own in _IN_SITE or own.startswith("papers/") else f"docs/{own}"
    name = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
    place = _IN_SITE.get(name, name.removeprefix("docs/"))
    if name.startswith(("docs/", "papers/")) or name in _IN_SITE:
        if files.get_file_from_path(place) is None and (ROOT / name).exists() and not name.startswith("docs/"):
            return _in_repository(text, name)
        relative = os.path.relpath(place, posixpath.dirname(page.file.src_uri) or ".")
        return f"{picture}[{text}]({relative}{'#' * bool(anchor)}{anchor})"
    if not (ROOT / name).exists():
        raise ValueError(f"{own}: {target} leads nowhere")
    return _in_repository(text, name)


def _in_repository(text: str, name: str) -> str:
    url = PROJECT["project"]["urls"]["Repository"]
    # A reserved name stands for the address until there is one.
    return text if url.endswith(".example") else f"[{text}]({url}/blob/main/{name})"


def _marker(found: re.Match[str]) -> str:
    written = _MARKERS.get(found[1])
    _written.add(found[2])
    return found[0] if written is None else f"\n{written(found[2]) if found[2] else written()}\n"


def on_page_content(html: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Set equations as MathML, which browsers show by themselves."""
    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', lambda one: _equation(one[1], "inline"), html)
    html = re.sub(
        r'(?s)<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>',
        lambda one: f'<div class="equation">{_equation(one[1], "block")}</div>',
        html,
    )
    return html


def on_post_page(output: str, page: "Page", config: "MkDocsConfig") -> str:
    """Take the one script that the theme would fetch from elsewhere from docs/."""
    shim = os.path.relpath("iframe_worker.js", posixpath.dirname(page.file.src_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", shim)


def on_post_build(config: "MkDocsConfig") -> None:
    """Refuse a site without the source of a method."""
    if missing := sorted(set(STRATEGIES) - _written):
        raise ValueError(f"no page has: {', '.join(f'<!-- method: {name} -->' for name in missing)}")


def _equation(latex: str, display: str) -> str:
    from latex2mathml.converter import convert

    text = re.sub(r"\\([Bb]ig\b|!)", "", html.unescape(latex)).replace(r"\arg\min", r"\operatorname{argmin}")
    found = convert(text.strip(), display=display)
    if "\\" in found:
        raise ValueError(f"{latex}: latex2mathml does not know a command in it")
    return found


# What is written from the code


def _api() -> str:
    """Every public name, by what it is for."""
    groups: dict[str, list[str]] = {
        "Functions": [], "Results, and data of clients": [], "Strategies of your own": [], "Tasks of your own": [],
    }  # fmt: skip
    for name, home in florets._HOMES.items():
        value = getattr(florets, name)
        if home.startswith("api.") and not inspect.isclass(value):
            groups["Functions"].append(name)
        elif home.startswith(("api.", "conf.")):
            groups["Results, and data of clients"].append(name)
        elif home.startswith(("task.data", "task.partitions")):
            groups["Tasks of your own"].append(name)
        else:
            groups["Strategies of your own"].append(name)
    return "\n\n".join(
        f"## {title}\n\n" + "\n\n".join(f"::: florets.{name}" for name in names) for title, names in groups.items()
    )


def _cell(text: str) -> str:
    """Return a text of the code as a cell of a table."""
    text = html.escape(" ".join(text.split()), quote=False).replace("|", "&#124;")
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", text)


def _table(rows: Sequence[Row]) -> str:
    heads = ["name", "meaning"]
    heads += ["default, other words"] * any(row.values is not None for row in rows)
    heads += ["strategies"] * any(row.owners for row in rows)
    lines = ["".join(f"<th>{head}</th>" for head in heads)]
    for row in rows:
        cells = [f"<code>{_cell(row.name)}</code>", _cell(row.text), _cell(row.values or ""), _cell(row.owners)]
        lines.append("".join(f"<td>{cell}</td>" for cell in cells[: len(heads)]))
    body = "\n".join(f"<tr>{line}</tr>" for line in lines[1:])
    return f"<table>\n<thead><tr>{lines[0]}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _configuration() -> str:
    return "\n\n".join(f"## {title}\n\n{_table(rows)}" for title, rows in reference())


def _commands() -> str:
    return "\n\n".join(f"## florets {word}\n\n```text\n{help_on(word)}\n```" for word in WORDS)


def _caps() -> str:
    head = "<thead><tr><th>cap</th><th>default</th><th>at most so many</th></tr></thead>"
    rows = [f"<td><code>{cap.key}</code></td><td>{cap.most:,}</td><td>{_cell(cap.what)}</td>" for cap in ALL_CAPS]
    return f"<table>\n{head}\n<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody>\n</table>"


def _method(name: str) -> str:
    """Where a method comes from, in what it deviates, and its settings."""
    module, _, class_name = find_strategy(name).path.partition(":")
    text = inspect.getdoc(getattr(importlib.import_module(module), class_name)) or ""
    told = re.split(r"\b(Source|Deviation): ", text)[1:]
    found: dict[str, list[str]] = {"Source": [], "Deviation": []}
    for kind, what in zip(told[::2], told[1::2], strict=True):
        found[kind].append(f"<li>{_cell(what)}</li>")
    assert found["Source"] or name in ("local", "oracle"), f"{name}: its docstring has no `Source:`"
    parts = [f"<summary>Source, deviations and settings of <code>strategy={name}</code></summary>"]
    for kind, items in found.items():
        if items:
            parts.append(f"<p><strong>{kind}{'s' * (len(items) > 1)}</strong></p>\n<ul>{''.join(items)}</ul>")
    if rows := keys_of_strategy(name):
        parts.append(f"<p><strong>Settings</strong></p>\n{_table(rows)}")
    presets = ", ".join(f"<code>{preset}</code>" for preset in choices("experiment") if preset.startswith(f"{name}/"))
    if presets:
        parts.append(f"<p><strong>Presets</strong>: {presets}</p>")
    return "<details>\n" + "\n".join(parts) + "\n</details>"


_MARKERS: dict[str, Callable[..., str]] = {
    "api": _api,
    "configuration": _configuration,
    "caps": _caps,
    "commands": _commands,
    "method": _method,
}
"""Functions that write the text in place of a comment `<!-- name: argument -->`, by name."""
