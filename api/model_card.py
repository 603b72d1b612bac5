"""Model card of an export, in the form that Hugging Face reads: front matter in YAML, then Markdown."""

import platform
import re
import shlex
from collections.abc import Iterable, Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from florets.api.exported import Exported
from florets.conf.extras import version
from florets.conf.typed import show
from florets.reports.console import counted
from florets.server_app.data_agreement import is_own
from florets.server_app.recorder import read_summary
from florets.strategies.registry import find_strategy
from florets.task.data.tables.preprocessing import Preprocessing

_SCORES = {
    "classification": ("accuracy", "balanced_accuracy", "macro_f1", "auc"),
    "regression": ("rmse", "mae", "r2", "loss"),
    "reconstruction": ("loss",),
}
_PERCENT = ("accuracy", "balanced_accuracy", "macro_f1")
_NAMES = {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R2", "macro_f1": "macro F1"}
_MOST_ROWS = 100
_MOST_CATEGORIES = 12
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")

Cells = Sequence[object]


def model_card(folder: Path, found: Exported, license: str, onnx: bool) -> str:
    """Return the card's text.

    Parameters
    ----------
    folder
        The run's.
    found
        What is exported of it.
    license
        Identifier for the front matter; "": none was named.
    onnx
        Whether the models are exported as ONNX as well.
    """
    run = found.run
    config, prepared = run.config, run.preprocessing
    used = [name for shares in found.sites.values() for name in shares]
    which = next(iter(found.sites), next(iter(found.models)))
    given = {key: value for key, value in config.task.data_options.items() if key != "classes" and value is not None}
    options = ", ".join(f"`{key}={show(value)}`" for key, value in given.items())
    # Markdown, in which `plain` escapes what comes from the sites.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = _plain
    return environment.get_template("model_card.md.jinja").render(
        found=found,
        run=run,
        config=config,
        task=config.task,
        train=config.train,
        strategy=config.strategy.settings,
        prepared=prepared,
        summary=read_summary(folder),
        label=find_strategy(config.strategy.name).label,
        license=license,
        onnx=onnx,
        front_matter=_front_matter(found, license),
        is_own=is_own(config),
        is_mixed=_is_mixed(found),
        is_local=len(set(used)) == len(used),
        is_images=_is_images(found),
        groups=_groups(found),
        sites=_sites(found),
        columns=_columns(prepared) if prepared else "",
        unit=prepared.units.get(prepared.target, "") if prepared else "",
        options=f" with {options}" if options else "",
        # A name comes from its site, and the line is made to be pasted into a shell.
        which=shlex.quote(which),
        model=next(iter(found.sites.get(which, found.models))),
        parameters=sum(values.size for values in next(iter(found.models.values())).values()),
        unused=[] if run.own else [name for name in found.models if name not in used],
        lost=[row["client"] for row in found.rows if row["client"] not in found.sites],
        florets=version(),
        python=platform.python_version(),
        most=_MOST_CATEGORIES,
        counted=counted,
        show=show,
        installed=installed,
    )


def _front_matter(found: Exported, license: str) -> str:
    kind = "tabular" if found.run.preprocessing is not None else "image" if _is_images(found) else ""
    tags = ["federated-learning", "clustered-federated-learning", "florets", found.run.config.strategy.name]
    values: dict[str, Any] = {"license": license or "unknown", "library_name": "pytorch", "tags": tags}
    if kind and found.task != "reconstruction" and (kind, found.task) != ("image", "regression"):
        values["pipeline_tag"] = f"{kind}-{found.task}"
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))


def _is_images(found: Exported) -> bool:
    shape = found.run.task.input_shape
    return len(shape) == 3 and shape[0] in (1, 3)


def _is_mixed(found: Exported) -> bool:
    return any(len(shares) > 1 for shares in found.sites.values())


def _groups(found: Exported) -> str:
    rows: list[Cells] = []
    # A mixture's figures, and those of a site's own model, are not those of a group's.
    scores = [] if _is_mixed(found) or found.run.own else _scores(found)
    count = len(found.run.models)
    for name in (f"model_{k}" for k in range(min(count, _MOST_ROWS))):
        members = [
            row
            for row in found.rows
            if name in found.sites.get(row["client"], {})
            # A site with its own model belongs to a group, too.
            or (row["client"] in found.run.own and name == f"model_{row['found_cluster']}")
        ]
        sites = ", ".join(_plain(row["client"]) for row in members[:_MOST_CATEGORIES])
        others = f" and {len(members) - _MOST_CATEGORIES} more" if len(members) > _MOST_CATEGORIES else ""
        means = [_mean(row.get(f"test_{score}") for row in members) for score in scores]
        samples = sum(int(row["num_examples"] or 0) for row in members)
        cells = [_figure(score, value) for score, value in zip(scores, means, strict=True)]
        rows.append((f"`{name}`", f"{sites}{others}" or "none", samples, *cells))
    head = ("model", "sites", "training samples", *(f"mean {_title(score)}" for score in scores))
    more = f"\n\n{count - _MOST_ROWS} more models are in `export.json`." if count > _MOST_ROWS else ""
    note = "\n\nFigures are unweighted means over a model's sites, each on its own test records." if scores else ""
    return _table(head, rows) + more + note


def _sites(found: Exported) -> str:
    scores, rows = _scores(found), []
    for row in found.rows[:_MOST_ROWS]:
        shares = found.sites.get(row["client"], {})
        models = ", ".join(
            f"`{name}`" if share == 1 else f"`{name}` {100 * share:.0f} %" for name, share in shares.items()
        )
        cells = [_figure(score, _number(row.get(f"test_{score}"))) for score in scores]
        rows.append((_plain(row["client"]), models or "none", row["num_examples"], row["test_examples"], *cells))
    head = ("site", "model", "training samples", "test samples", *map(_title, scores))
    more = len(found.rows) - _MOST_ROWS
    return _table(head, rows) + (f"\n\n{more} more sites are in `export.json`." if more > 0 else "")


def _scores(found: Exported) -> list[str]:
    """Return the scores of which some site has a figure."""
    return [name for name in _SCORES[found.task] if any(row.get(f"test_{name}") for row in found.rows)]


def _columns(prepared: Preprocessing) -> str:
    rows: list[Cells] = [
        (_plain(one.name), "number", _plain(prepared.units.get(one.name, "")), "mean") for one in prepared.numeric
    ]
    for words in prepared.categorical:
        shown = ", ".join(map(_plain, words.categories[:_MOST_CATEGORIES]))
        more = (
            f" and {len(words.categories) - _MOST_CATEGORIES} more"
            if len(words.categories) > _MOST_CATEGORIES
            else ""
        )
        rows.append((_plain(words.name), f"one of {shown}{more}", "", _plain(words.mode)))
    return _table(("column", "kind", "unit", "a missing value counts as"), rows)


def _table(head: Cells, rows: Iterable[Cells]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def _plain(text: str) -> str:
    """Return a text as Markdown shows it letter by letter: names come from the sites."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _title(score: str) -> str:
    return _NAMES.get(score, score.replace("_", " "))


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _mean(texts: Iterable[str | None]) -> float | None:
    values = [value for text in texts if (value := _number(text)) is not None]
    return sum(values) / len(values) if values else None


def _figure(score: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f} %" if score in _PERCENT else f"{value:.4g}"
