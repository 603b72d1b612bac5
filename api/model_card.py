"""Model card of an export, in the form that Hugging Face reads: front matter in YAML, then Markdown."""

import platform
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import yaml

from florets.api.exported import Exported
from florets.conf.extras import version
from florets.conf.typed import show
from florets.reports.console import counted
from florets.reports.summary import RunSummary
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
    config, summary, models = found.run.config, read_summary(folder), counted(len(found.models), "model")
    label = find_strategy(config.strategy.name).label
    sections = [
        _front_matter(found, license, config.strategy.name),
        f"# {_plain(config.experiment)}: {models} for {counted(len(found.rows), 'site')}",
        f"{_what(found, label)} {_licence(license)}",
        "## Groups",
        _groups(found),
        "## Sites",
        _sites(found),
        "## Inputs and outputs",
        *_inputs(found),
        "## Use",
        *_use(found, onnx),
        "## Training",
        _training(found, summary, label),
        "## Limits",
        "\n".join(f"- {text}" for text in _limits(found, summary)),
    ]
    return "\n\n".join(sections) + "\n"


def _front_matter(found: Exported, license: str, strategy: str) -> str:
    kind = "tabular" if found.run.preprocessing is not None else "image" if _is_images(found) else ""
    tags = ["federated-learning", "clustered-federated-learning", "florets", strategy]
    values: dict[str, Any] = {"license": license or "unknown", "library_name": "pytorch", "tags": tags}
    if kind and found.task != "reconstruction" and (kind, found.task) != ("image", "regression"):
        values["pipeline_tag"] = f"{kind}-{found.task}"
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _is_images(found: Exported) -> bool:
    shape = found.run.task.input_shape
    return len(shape) == 3 and shape[0] in (1, 3)


def _what(found: Exported, label: str) -> str:
    data = "of their own" if is_own(found.run.config) else f"of a simulation on `{found.run.config.task.data}`"
    used = [name for shares in found.sites.values() for name in shares]
    if len(found.models) == 1:
        how = "federated learning: all sites share one model"
    elif _is_mixed(found):
        how = "federated learning of mixtures: each site predicts with all models, each with its own weights"
    elif found.run.own:
        how = "personalised federated learning: each site has its own model in addition to that of its group"
    elif len(set(used)) == len(used):
        how = "local training: each site has its own model"
    else:
        how = "clustered federated learning: sites whose data are alike share a model"
    return (
        f"Trained on {counted(len(found.rows), 'site')} with data {data} by {how} (method {_plain(label)}). No "
        "record has left a site."
    )


def _is_mixed(found: Exported) -> bool:
    return any(len(shares) > 1 for shares in found.sites.values())


def _licence(license: str) -> str:
    return (
        f"Licence: {_plain(license)}."
        if license
        else "No licence was named: ask those who trained the models before you use them."
    )


def _groups(found: Exported) -> str:
    rows: list[Cells] = []
    # A mixture's figures, and those of a site's own model, are not those of a group's.
    scores = [] if _is_mixed(found) or found.run.own else _scores(found)
    count = len(found.run.models)
    for name in (f"model_{k}" for k in range(min(count, _MOST_ROWS))):
        members = [
            row for row in found.rows if name in found.sites.get(row["client"], {}) or _is_in(row, name, found)
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


def _is_in(row: Mapping[str, str], name: str, found: Exported) -> bool:
    """Return whether a site with its own model belongs to a group."""
    return row["client"] in found.run.own and name == f"model_{row['found_cluster']}"


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


def _inputs(found: Exported) -> Iterator[str]:
    run, shape = found.run, list(found.run.task.input_shape)
    if run.preprocessing is not None:
        yield _columns(run.preprocessing)
        yield _preprocessing_words(run.preprocessing)
    else:
        yield f"Inputs: float32 `(n, {', '.join(map(str, shape))})`. {_scaling(found)}"
    if found.task == "classification":
        names = ", ".join(map(_plain, found.classes[:50])) + (" and more" if len(found.classes) > 50 else "")
        yield (
            f"The programs return logits `(n, {len(found.classes)})`, whose softmax is the probabilities of the "
            f"classes, in this order: {names}."
        )
    elif found.task == "reconstruction":
        yield "The programs return reconstructions, one flat row per input."
    elif run.preprocessing is not None:
        target = run.preprocessing
        unit = target.units.get(target.target, "")
        yield (
            f"The programs return standardised values `(n, 1)` of {_plain(target.target)}: times "
            f"{target.target_std:.6g} plus {target.target_mean:.6g}{unit and f' they are in {_plain(unit)}'}. "
            "`predict.py` does that."
        )
    else:
        yield "The programs return values `(n, 1)`."


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


def _preprocessing_words(prepared: Preprocessing) -> str:
    how = {
        "pooled": "Numbers are standardised by the mean and standard deviation over all sites.",
        "site": "Numbers are standardised by each site's own mean and standard deviation: a prediction needs the "
        "site, or 30 records of a new one.",
        "none": "Numbers are not standardised.",
    }
    return (
        f"{how[prepared.standardise]} A category that no site had counts as unknown. `preprocess.py` "
        "applies `preprocessing.json`; where a file differs (names, units, marks of missing values), a `node.toml` "
        "next to it says so: `rename`, `scale`, `missing`."
    )


def _scaling(found: Exported) -> str:
    task = found.run.config.task
    options = {key: value for key, value in task.data_options.items() if key != "classes" and value is not None}
    given = f" with {', '.join(f'`{key}={show(value)}`' for key, value in options.items())}" if options else ""
    if not _is_images(found):
        return f"They are scaled as `task.data={task.data}`{given} gives them; `predict.py` does not scale them."
    channels = "RGB" if found.run.task.input_shape[0] == 3 else "grey"
    # Of images in folders, see `florets.task.data.image_files.read_image`.
    largest = "of their type" if task.data == "own" else "that the files can have"
    return (
        f"Images, channels first ({channels}), as `task.data={task.data}`{given} gives them: integers divided by the "
        f"largest value {largest} (bytes by 255), so that pixels are in [0, 1], unless an option here says "
        "otherwise. `predict.py` divides bytes (uint8) by 255 and takes all else as it is."
    )


def _use(found: Exported, onnx: bool) -> Iterator[str]:
    which = next(iter(found.sites), next(iter(found.models)))
    model = next(iter(found.sites.get(which, found.models)))
    is_table = found.run.preprocessing is not None
    yield (
        f"```bash\npip install torch{'' if is_table else ' numpy'}\n"
        # A name comes from its site, and the line is made to be pasted into a shell.
        f"python predict.py {shlex.quote(which)} new.{'csv' if is_table else 'npy'} > predictions.csv\n```"
    )
    yield (
        "The first argument is a site, whose model is used, or a model. "
        + ("Records are raw, as the sites have them: CSV or a JSON list of objects. " if is_table else "")
        + ("" if is_table else "Arrays may be `.npy`, `.npz` (`x`), `.pt` or `.json`; the last two need no NumPy. ")
        + "Python 3.11 or later. In a program of your own:"
    )
    call = f'program = torch.export.load("{model}.pt2").module()'
    yield f"```python\nimport torch\n\n{call}\noutputs = program(x)  # float32, any number of rows\n```"
    files = [
        f"`{model}.pt2`: a program of torch.export",
        f"`{model}.safetensors`: its state dict",
        *([f"`{model}.onnx`: for ONNX runtimes, input `x`, output `outputs`"] if onnx else []),
    ]
    yield "; ".join(files) + "; likewise for the other models. `export.json`: which site uses which model."


def _training(found: Exported, summary: RunSummary, label: str) -> str:
    config, task = found.run.config, found.run.config.task
    parameters = sum(values.size for values in next(iter(found.models.values())).values())
    train = config.train
    rounds = counted(summary.rounds, "round")
    best = (
        f", with the models of round {summary.best_round}" if summary.best_round not in (None, summary.rounds) else ""
    )
    effort = f"{train.local_epochs:g} epoch(s)" if train.local_steps is None else counted(train.local_steps, "step")
    options = f" {show(dict(task.model_options))}" if task.model_options else ""
    head = f", head {', '.join(task.head_layers)}" if task.head_layers else ""
    rows: list[Cells] = [
        ("method", f"{label}{'' if config.strategy.settings.one_model else f', K = {config.k}'}, {rounds}{best}"),
        ("personal models", config.personal or "none"),
        ("model", f"`{task.model}`{options}{head}, {parameters:,} parameters and buffers"),
        ("loss", task.loss),
        ("data", f"`{task.data}`, partition `{task.partition}`"),
        ("local training", f"{train.optimizer}, learning rate {train.learning_rate:g}, {effort} of batches of "
         f"{train.batch_size} in a round"),
        ("seed", config.seed),
        ("versions", f"Florets {version()}, Flower {installed('flwr')}, torch {installed('torch')}, "
         f"Python {platform.python_version()}"),
    ]  # fmt: skip
    return _table(("setting", "value"), [(name, str(value)) for name, value in rows])


def _limits(found: Exported, summary: RunSummary) -> Iterator[str]:
    run = found.run
    yield "The figures are for test records of the sites that trained the models; other sites may differ."
    yield (
        "`florets assign` says which model fits a new site, from data with targets; without Florets, compare the "
        "models' losses on them."
    )
    used = {name for shares in found.sites.values() for name in shares}
    if not found.run.own and (unused := [name for name in found.models if name not in used]):
        names = ", ".join(f"`{name}`" for name in unused)
        yield f"No site uses {names}: untrained or out of date, do not use."
    if lost := [row["client"] for row in found.rows if row["client"] not in found.sites]:
        yield f"{counted(len(lost), 'site')} got no model: {', '.join(map(_plain, lost[:_MOST_CATEGORIES]))}."
    if run.config.strategy.settings.adapts:
        yield (
            "Sites adapt these models by a gradient step on their own training data, and the figures are for "
            "adapted models; the exported ones are not adapted."
        )
    if _is_mixed(found):
        yield "A site's figures are for its mixture, not for a single model."
    yield (
        "No record has left a site, but models can reveal something of the records that they were trained on; "
        "no differential privacy was applied."
    )
    for warning in summary.warnings:
        yield f"The run warned: {_plain(warning)}"
    yield f"A program is read by torch {installed('torch').partition('+')[0]} and later, not always by earlier ones."


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
