"""Check of sites' data on this machine: their descriptions, problems with remedies, and a page."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines.own_nodes import own_nodes, stated
from florets.reports.console import counted
from florets.reports.folder import private, write_whole
from florets.reports.pages import Cell, Paged, render
from florets.server_app.data_agreement import (
    CHECK,
    DESCRIPTION,
    agreed_spec,
    agreement,
    declaration_of,
    describe_here,
    lines,
)
from florets.server_app.data_findings import Finding, find
from florets.task.data.own import find_files, holds_data
from florets.task.data.samples import read_arrays
from florets.task.data.tables.agreement import Agreed
from florets.task.data.tables.declaration import Declaration, site_file, unread_files
from florets.task.data.tables.description import ColumnSummary, Description
from florets.task.data.tables.names import NODE_FILE_WORDS, as_numbers, listed, toml_key
from florets.task.data.tables.site_table import read_once
from florets.task.wire import kinds

if TYPE_CHECKING:
    import pandas as pd

_MOST_SITES = 60
_MOST_COLUMNS = 200
_REPEATS, _FEWEST_OTHERS = 3, 5
"""Records that have a code for a missing value, and different other values of its column, at least."""

_PAGE = """{% extends "page" %}
{% block css %}
ul.findings { margin: 0; padding: 0; list-style: none; }
ul.findings li { padding: .45rem 0 .45rem .8rem; border-left: 4px solid var(--line); margin: .35rem 0; }
ul.findings li.error { border-color: var(--bad); } ul.findings li.warning { border-color: var(--warn); }
table.of-sites td, table.of-sites th { white-space: normal; }
table.of-sites td:not(:first-child) { min-width: 5.5rem; }
ul.findings .level { color: var(--quiet); font-size: .84rem; }
ul.findings .remedy { color: var(--quiet); display: block; overflow-wrap: anywhere; }
{% endblock %}
{% block main %}
{% call section("Findings") %}
{% if findings %}<ul class="findings">
{% for one in findings -%}
<li class="{{ one.level }}"><span class="level">{{ one.level }}</span>
{% if one.site %}<strong>{{ one.site }}</strong>: {% endif %}{{ one.text }}
{% if one.remedy %}<span class="remedy">{{ one.remedy }}</span>{% endif %}</li>
{% endfor %}</ul>{% else %}<p>No findings.</p>{% endif %}
{% endcall %}
{% call section("Sites", "Figures are of each site's training records.") %}{{ table(sites, "of-sites") }}{% endcall %}
{% if columns %}
{% call section("Columns") %}
<p>Median and 10th to 90th percentile of numbers, the most frequent words of others; gaps in brackets.</p>
{{ table(columns, "of-sites") }}
{% endcall %}
{% endif %}
{% endblock %}
{% block footer %}
Made by Florets from counts and sums of each site's training records; no record left a site.
{% endblock %}
"""


def _sites(sites: Mapping[str, Description], agreed: Agreed | None) -> list[list[Cell]]:
    regression = agreed is not None and agreed.is_regression
    classes = sorted({name for site in sites.values() if site.target is not None for name in site.target.classes})
    by_class = not regression and 0 < len(classes) <= 10
    head = ["site", "records", "training records", "missing values"]
    head += [f"class {name}" for name in classes] if by_class else []
    head += ["mean of the target", "spread"] if regression else []
    rows: list[list[Cell]] = [[*head]]
    for key, site in sites.items():
        inputs = [column for column in site.columns if column.role == "input"]
        cells = sum(column.known + column.missing for column in inputs)
        missing = sum(column.missing for column in inputs)
        fraction = f"{100 * missing / cells:.1f} %" if cells else "-"
        row: list[Cell] = [key, site.records, site.train_records, fraction]
        target = site.target
        if by_class:
            counts = {} if target is None else target.classes
            total = max(sum(counts.values()), 1)
            row += [f"{100 * counts.get(name, 0) / total:.1f} %" for name in classes]
        if regression:
            known = target if target is not None and math.isfinite(target.mean) else None
            row += [f"{known.mean:.4g}", f"{math.sqrt(known.m2 / known.known):.3g}"] if known else ["-", "-"]
        rows.append(row)
    return rows


def _columns(sites: Mapping[str, Description]) -> list[list[Cell]]:
    own = {key: {column.name: column for column in site.columns} for key, site in sites.items()}
    names = list(dict.fromkeys(name for columns in own.values() for name in columns))[:_MOST_COLUMNS]
    rows: list[list[Cell]] = [["column", *own]]
    for name in names:
        rows.append([name, *(_cell(columns.get(name)) for columns in own.values())])
    return rows


def _cell(column: ColumnSummary | None) -> str:
    if column is None:
        return "no such column"
    gaps = f" ({100 * column.missing / (column.known + column.missing):.0f} % missing)" if column.missing else ""
    if column.role != "input":
        return f"no input ({column.role})"
    if column.kind == "empty":
        return "no values"
    if column.quantiles:
        low, middle, high = column.quantiles
        return f"{middle:.4g} ({low:.4g} to {high:.4g}){gaps}"
    if column.categories:
        words = sorted(column.categories, key=lambda word: -column.categories[word])[:3]
        return f"{', '.join(words)}{' ...' if len(column.categories) > 3 else ''}{gaps}"
    return f"too few values{gaps}"


class Check(Paged):
    """Findings about clients' data.

    Parameters
    ----------
    folder : Path
        With ``check.html``, ``check.json`` and ``description.json``.
    sites : mapping of str to Description
        Of each client that can be read.
    agreed : Agreed, optional
        What they have in common; None where they do not fit together.
    found : list of Finding
        Errors first.
    """

    def __init__(
        self, folder: Path, sites: Mapping[str, Description], agreed: Agreed | None, found: Sequence[Finding]
    ) -> None:
        super().__init__(folder, "check.html")
        self._sites, self._agreed, self._findings = sites, agreed, found

    @property
    def findings(self) -> "pd.DataFrame":
        """A row for each finding, errors first: level, client (empty: all), text, remedy."""
        import pandas as pd

        rows = [(one.level, one.site, one.text, one.remedy) for one in self._findings]
        return pd.DataFrame(rows, columns=["level", "client", "text", "remedy"])

    @property
    def is_usable(self) -> bool:
        """Whether every client could take part."""
        return not self._number("error")

    @property
    def text(self) -> str:
        """The findings and what the clients have in common, as the command prints them."""
        texts = [f"{one.level:7s} {one}" for one in self._findings]
        out = () if self._agreed is None else self._agreed.left_out
        taking_part = {key: site for key, site in self._sites.items() if key not in out}
        texts += [] if self._agreed is None else lines(taking_part, self._agreed)
        return "\n".join([*texts, *self._not_taking_part, f"{self._counts('error', 'warning')}. Page: {self.page}"])

    @property
    def _not_taking_part(self) -> list[str]:
        """The sites that have an error, in a line if there are some."""
        names = list(dict.fromkeys(one.site for one in self._findings if one.level == "error" and one.site))
        return [f"{counted(len(names), 'site')} cannot take part: {listed(names)}"] if names else []

    def save(self, title: str) -> None:
        """Write the page and the files."""
        with private():
            self._write(title)

    def _write(self, title: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        described = {key: json.loads(site.to_json()) for key, site in self._sites.items()}
        write_whole(self.folder / DESCRIPTION, json.dumps(described, ensure_ascii=False) + "\n")
        write_whole(self.folder / CHECK, json.dumps([asdict(one) for one in self._findings], indent=1) + "\n")
        unread = {one.site for one in self._findings if one.level == "error" and one.site}
        shown = dict(list(self._sites.items())[:_MOST_SITES])
        html = render(
            _PAGE,
            name=f"Check: {title}",
            above=title,
            title=f"{counted(len({*self._sites, *unread}), 'site')}: "
            + ("all can take part" if self.is_usable else f"{len(unread) or 'they'} cannot take part as they are"),
            findings=self._findings,
            sites=_sites(shown, self._agreed),
            columns=_columns(shown) if any(site.columns for site in self._sites.values()) else [],
        )
        write_whole(self.page, html)

    def _number(self, level: str) -> int:
        return sum(one.level == level for one in self._findings)

    def _counts(self, *levels: str) -> str:
        return ", ".join(counted(self._number(level), level) for level in levels)

    def __repr__(self) -> str:
        kinds = self._counts("error", "warning", "note")
        return f"<florets.Check of {counted(len(self._sites), 'client')}: {kinds}; {self.page}>"


def _equal_data(
    declared: Declaration, nodes: Sequence[Mapping[str, Any]], sites: Mapping[str, Description]
) -> list[Finding]:
    """Return a warning for each content of archives or tables that several clients have.

    Only this machine compares it: no figure of an archive is sent, and those of a table are of its training records,
    which each site draws.
    """
    import pandas as pd  # a second that only tables need

    found: dict[str, list[str]] = {}
    for node in nodes:
        key = str(node["client-id"])
        if key in sites and sites[key].form != "images":
            content = hashlib.sha256()
            if sites[key].form == "table":
                for frame in _frames(declared, node):
                    content.update(repr([*frame.columns]).encode())
                    content.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
            else:
                for path in find_files(Path(str(node["data-dir"]))).paths:
                    for array in read_arrays(path, ("x", "y")):
                        content.update(array.tobytes())
            found.setdefault(content.hexdigest(), []).append(key)
    remedy = "If one is a copy, remove it: it counts twice, and its records are tested on where they are trained on."
    same = [keys for keys in found.values() if len(keys) > 1]
    return [Finding("warning", "", f"{listed(keys)} have equal data", remedy) for keys in same]


def _frames(declared: Declaration, node: Mapping[str, Any]) -> "list[pd.DataFrame]":
    """Return the records of a node's files."""
    frames = [read_once(path, declared).frame for path in find_files(Path(str(node["data-dir"]))).paths]
    if kinds.ROWS_OF in node:
        owner = declared.owner
        frames = [frame[frame[owner] == node[kinds.ROWS_OF]].drop(columns=owner) for frame in frames]
    return frames


def _codes(
    declared: Declaration, nodes: Sequence[Mapping[str, Any]], sites: Mapping[str, Description]
) -> list[Finding]:
    """Return a warning for each column with codes for missing values, which only this machine looks for and names."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for node in nodes:
        site = sites.get(key := str(node["client-id"]))
        if site is None or site.form != "table" or site.target is None:
            continue
        parts = _frames(declared, node)
        for name in [*(column.name for column in site.columns if column.kind == "numeric"), site.target.name]:
            values = np.concatenate([as_numbers(frame[name]) for frame in parts])
            if codes := _far_and_repeated(values):
                cells = ", ".join(f'"{code:.0f}"' for code in codes)
                found.setdefault((name, cells), {})[key] = int(np.isin(values, codes).sum())
    return [
        Finding(
            "warning",
            "",
            f"{name!r} is {cells} in {sum(counts.values())} records of {listed(sorted(counts))}, far outside its "
            "other values",
            f"If that stands for a missing value, declare it in {NODE_FILE_WORDS}: "
            f"missing_in = {{{toml_key(name)} = [{cells}]}}.",
        )
        for (name, cells), counts in found.items()
    ]


def _far_and_repeated(values: NDArray[np.float64]) -> list[float]:
    """Return up to three integers that repeat, further from all other values than these are from one another.

    Among few other values, such as classes, only a number of nines counts.
    """
    different, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    for sign in (1, -1):
        ordered, number = sign * different[::sign], counts[::sign]
        for cut in range(1, min(4, len(ordered) - 1)):
            is_far = ordered[cut] - ordered[cut - 1] > ordered[-1] - ordered[cut]
            codes = sign * ordered[:cut]
            are_nines = all(set(f"{abs(code):.0f}") == {"9"} for code in codes)
            if not are_nines and len(ordered) - cut < _FEWEST_OTHERS:
                continue
            if is_far and number[:cut].min() >= _REPEATS and (codes == np.floor(codes)).all():
                return [float(code) for code in codes]
    return []


def _as_in_the_run(
    config: Config, nodes: Sequence[Mapping[str, Any]], sites: Mapping[str, Description], agreed: Agreed
) -> tuple[dict[str, Description], dict[str, str]]:
    """Return the descriptions with the test records that a run leaves out, and why it refuses other sites' data.

    Arrays are read again only where there may be such records.
    """
    asked = {
        key for key, site in sites.items() if key not in agreed.left_out and (site.form == "table" or site.unseen)
    }
    spec = agreed_spec(config, sites, agreed)
    again, refused = describe_here(config, [node for node in nodes if str(node["client-id"]) in asked], spec)
    return {
        key: replace(site, unseen=again[key].unseen) if key in again else site for key, site in sites.items()
    }, refused


def check(config: Config, data: Path, folder: Path) -> Check:
    """Describe each site's data in this process, and write the findings into a folder.

    `data` is the folder of all sites, or the data of one.
    """
    has_folders = data.is_dir() and any(holds_data(path) for path in data.iterdir() if path.is_dir())
    is_one = not config.task.table.owner and not has_folders and holds_data(data)
    nodes = (
        [{"client-id": data.name, **stated(site_file(data)), "data-dir": str(data)}]
        if is_one
        else own_nodes(replace(config, data_dir=str(data)))
    )
    sites, failed = describe_here(config, nodes)
    agreed = None
    if sites:
        try:
            agreed = agreement(config, declaration_of(config), sites)
        except ConfigError as error:
            failed[""] = str(error).removesuffix(".")
        else:
            sites, refused = _as_in_the_run(config, nodes, sites, agreed)
            failed |= refused
    findings = find(sites, agreed, failed)
    declared = declaration_of(config)
    more = _codes(declared, nodes, sites)
    if not is_one and data.is_dir():
        more += [
            Finding("warning", "", f"{name} is not read", f"{remedy[:1].upper()}{remedy[1:]}.")
            for name, remedy in unread_files(data).items()
        ]
    more += _equal_data(declared, nodes, sites)
    errors = [one for one in findings if one.level == "error"]
    result = Check(folder, sites, agreed, [*errors, *more, *findings[len(errors) :]])
    result.save(data.name)
    return result
