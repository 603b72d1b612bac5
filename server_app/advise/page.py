"""The page of an advice: one HTML file that a reader without knowledge of federated learning can follow."""

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from florets.server_app.advise.advice import Advice
from florets.server_app.advise.methods import TITLES, Question, command
from florets.server_app.advise.outcomes import Outcome
from florets.server_app.advise.page_template import PAGE
from florets.server_app.advise.page_template import STYLE as OWN_STYLE
from florets.server_app.advise.words import Words, amount, p_text, value
from florets.server_app.console import counted
from florets.server_app.results.folder import write_whole
from florets.server_app.results.report_figures import duration, size
from florets.server_app.results.report_template import STYLE

NAME = "advice.html"
MOST_SITES = 200
_WIDTH, _LEFT, _ROW = 860, 430, 30


def write_page(folder: Path, advice: Advice, question: Question) -> Path:
    """Write the page into the folder of the runs and return its path."""
    words, metric = Words(advice, question), advice.best.metric
    base = question.base
    head, rows = _sites(advice, words)
    # Names of clients come from other machines: autoescape keeps them text.
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(PAGE)
    html = page.render(
        style=STYLE + OWN_STYLE,
        title=f"{base.experiment}, seed {base.seed}",
        words=words,
        finding=advice.finding,
        tiles=_tiles(advice, words),
        rounds=counted(base.num_rounds, "round"),
        validation=f"{question.validation:.0%} of those for training",
        chart=_chart(advice),
        figure="accuracy" if metric == "accuracy" else "loss",
        figure_words=(
            "The fraction of records that are predicted correctly. Where one kind of mistake costs more than "
            "another, look at more than this figure."
            if metric == "accuracy"
            else "How far predictions are from the truth, on average; lower is better."
        ),
        methods=[_method(advice, one, words) for one in advice.outcomes],
        fine_tuned=advice.outcome("tuned") is not None,
        epochs=f"{question.fine_tune_epochs:g}",
        groups=_groups(advice, words),
        picture=_picture(folder / "discovery" / "discovery.png"),
        site_head=head,
        sites=rows[:MOST_SITES],
        more_sites=len(rows) > MOST_SITES,
        command=command(question, advice.chosen, advice.finding),
    )
    path = folder / NAME
    write_whole(path, html)
    return path


def _tiles(advice: Advice, words: Words) -> list[dict[str, str]]:
    outcome, finding = advice.judged(advice.best), advice.finding
    groups = {
        "groups": str(len(finding.groups)), "lone": "none", "none": "none", "all_differ": "all differ",
        "open": "not looked for",
    }  # fmt: skip
    found = {"name": "groups", "value": groups.get(finding.kind, "too few to tell"), "note": p_text(finding.p_value)}
    tiles = [
        found,
        {"name": f"{outcome.metric}, advised method", "value": value(outcome.mean, outcome.metric), "note": ""},
    ]
    if outcome.worst is not None:
        key, figure = outcome.worst
        shown = value(figure.value, outcome.metric)
        tiles.append({"name": f"worst {words.site}", "value": shown, "note": f"{key}, {figure.records} test records"})
    note = f"all {words.site}s and rounds; {duration(outcome.seconds)} in this trial"
    return [*tiles, {"name": "data sent and received", "value": size(outcome.num_bytes), "note": note}]


def _method(advice: Advice, outcome: Outcome, words: Words) -> dict[str, Any]:
    gain, figures = advice.against(outcome.name), advice.judged(outcome)
    worst = figures.worst
    text = "-"
    if outcome.name == advice.chosen:
        text = "advised"
    elif gain is not None and math.isfinite(gain.mean):
        text = amount(-gain.mean, gain.half, outcome.metric, sign=True)
    return {
        "chosen": outcome.name == advice.chosen,
        "title": TITLES[outcome.name],
        "mean": value(figures.mean, outcome.metric),
        "gain": text,
        "worst": "-" if worst is None else f"{words.named([worst[0]])}: {value(worst[1].value, outcome.metric)}",
        "cost": f"{size(outcome.num_bytes)}, {duration(outcome.seconds)}",
    }


def _groups(advice: Advice, words: Words) -> str:
    finding, p = advice.finding, p_text(advice.finding.p_value)
    if finding.kind == "none":
        return f"None: the {words.site}s cannot be told apart ({p}), so that all can learn from all records."
    if finding.kind == "too_few":
        return f"Not known: {words.sites(finding.num_clients)} with these records are too few for a test."
    if finding.kind == "open":
        return f"Not looked for: too few of {words.sites(finding.num_clients)} took part in the rounds."
    if finding.kind == "all_differ":
        return f"None that help: each {words.site} differs from every other ({p})."
    return f"{' | '.join(words.named(group) for group in finding.groups)} ({p})."


def _sites(advice: Advice, words: Words) -> tuple[list[str], list[list[str]]]:
    """Return the table of all clients: their group, their records, and every method's figure."""
    names = {
        "fedavg": "FedAvg", "tuned": "fine-tuned", "discovery": "groups", "two_groups": "two groups",
        "clove": "CLoVE", "local": "alone", "standardised": "standardised",
    }  # fmt: skip
    group_of = {key: number + 1 for number, group in enumerate(advice.finding.groups) for key in group}
    several = len(advice.finding.groups) > 1
    head = [
        words.site,
        *(["group"] if several else []),
        "test records",
        *(names[one.name] for one in advice.outcomes),
    ]
    keys = sorted({key for one in advice.outcomes for key in one.test})
    rows = []
    for key in keys:
        figures = [one.test.get(key) for one in advice.outcomes]
        records = next((figure.records for figure in figures if figure is not None), 0)
        cells = ["-" if figure is None else value(figure.value, advice.best.metric) for figure in figures]
        rows.append([key, *([str(group_of.get(key, "-"))] if several else []), str(records), *cells])
    return head, rows


def _chart(advice: Advice) -> dict[str, Any]:
    """Return the places of the dots: a row for each method, a dot for each client."""
    found = [figure.value for one in advice.outcomes for figure in one.test.values()]
    finite = [number for number in found if math.isfinite(number)] or [0.0, 1.0]
    if advice.best.metric == "accuracy":
        # Round figures: every tenth, or every fifth where accuracies are far apart.
        high, step = 1.0, 0.1 if min(finite) >= 0.5 else 0.2
        low = max(0.0, high - step * max(1, math.ceil((high - min(finite)) / step - 1e-9)))
    else:
        low, high = 0.0, max(finite) or 1.0
        step = high / 5
    ticks = [low + step * number for number in range(round((high - low) / step) + 1)]

    def place(number: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 24) * (min(number, high) - low) / (high - low), 1)

    rows = [
        {
            "y": 18 + _ROW * number,
            "title": TITLES[one.name],
            "chosen": one.name == advice.chosen,
            "mean": place(mean) if math.isfinite(mean := advice.judged(one).mean) else None,
            "dots": [
                {"x": place(figure.value), "title": f"{key}: {value(figure.value, one.metric)}"}
                for key, figure in one.test.items()
                if math.isfinite(figure.value)
            ],
        }
        for number, one in enumerate(advice.outcomes)
    ]
    bottom = 8 + _ROW * len(rows)
    texts = [f"{100 * tick:.0f} %" if advice.best.metric == "accuracy" else f"{tick:.3g}" for tick in ticks]
    return {
        "width": _WIDTH,
        "height": bottom + 24,
        "bottom": bottom,
        "rows": rows,
        "ticks": [{"x": place(tick), "text": text} for tick, text in zip(ticks, texts, strict=True)],
    }


def _picture(path: Path) -> dict[str, Any] | None:
    """Return the plot of the run that looked for groups, where it drew one."""
    if not path.is_file():
        return None
    png = path.read_bytes()
    # The header of a PNG has its width in bytes 16 to 19; 1.5 dots for each pixel of the page keep it sharp.
    return {"data": base64.b64encode(png).decode("ascii"), "width": int.from_bytes(png[16:20], "big") * 2 // 3}
