"""The page of a finished run, and the figures in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from florets.reports import summary as summaries
from florets.reports.clients import ClientRow
from florets.reports.console import counted, duration, number, size
from florets.reports.folder import FINISHED, naming, write_whole
from florets.reports.pages import Cell, embedded, render, shaded
from florets.reports.protections import protections
from florets.reports.scores import Part

MOST_CLIENTS = 300
"""With more clients than this a page is slow to open, and nobody reads on: the rest is in clients.csv."""
SCORE_FIGURES = ("mean", "std", "weighted", "worst", "worst_tenth", "median", "q10", "q90")
MOST_COLUMNS = 30
"""With more models than this the table of clusters is left out."""
_SHOWN: tuple[Part, ...] = ("test", "tuned_test")
_PLOTS = ("curves", "discovery", "loss_matrix")
"""Names of a run's figures, without `.png`."""

Tile = tuple[str, str, str]
"""A figure of the whole run: name, value and note."""
Table = list[list[Cell]]
"""Rows of a page's table, the first one its head."""

_PAGE = """{% extends "page" %}
{% block header %}
{% if verdict %}<p class="verdict{{ ' good' if recovered else '' }}">{{ verdict }}</p>{% endif %}
{{ warnings(summary.warnings) }}
{% endblock %}
{% block main %}
{{ tiles(figures) }}

{% call section("Protections", shown=protections) %}
<ul>{% for name, state in protections %}<li>{{ name }}: {{ state }}</li>{% endfor %}</ul>
{% endcall %}

{% call section("Over the rounds", shown=plots.curves) %}
{{ image(plots.curves, "Curves over the rounds: adjusted Rand index and test result") }}
{% endcall %}

{% call section("Are there groups?", shown=summary.discovery) %}
<p class="found">{{ summary.discovery[0] | upper }}{{ summary.discovery[1:] }}.</p>
{% if plots.discovery %}
<p>Left: for every number of groups K, how well groups formed on some of the clients' data predict what the clients
learn from the rest (1 = exactly, 0 = not at all). Groups are claimed where the best score is higher than chance
gives. Right: how alike what two clients learned is, clients sorted by group.</p>
{{ image(plots.discovery, "Score over the number of groups, and similarity of every pair of clients") }}
{% endif %}
{% endcall %}

{% call section("Clusters", clusters[0], clusters[1]) %}{{ table(clusters[1], "confusion") }}{% endcall %}

{% call section("Losses", shown=plots.loss_matrix) %}
<p>At the end of the run: the lower the loss, the better the model fits the client.</p>
{{ image(plots.loss_matrix, "Heatmap of the loss of every model on every client") }}
{% endcall %}

{% call section("Tests", shown=scores) %}
<p>Figures over the clients at the end of the run; weighted: by test samples, worst tenth: mean of the worst 10 %.</p>
{{ table(scores, "full") }}
{% endcall %}

{% call section("Replies of all rounds") %}{{ table(replies) }}{% endcall %}

{% call folded("Clients (%d)" | format(num_clients), num_clients <= 40) %}
{% if num_clients > clients | length - 1 -%}
<p>The first {{ clients | length - 1 }} of them; all are in clients.csv, next to this page.</p>
{% endif -%}
{{ table(clients, "full") }}
{% endcall %}

{% call folded("Settings") %}<pre>{{ config }}</pre>{% endcall %}
{% endblock %}
{% block footer %}Written by Florets. The figures behind this page are in the files next to it.{% endblock %}
"""


def write_report(
    folder: Path,
    summary: summaries.RunSummary,
    lines: Sequence[summaries.RoundLine],
    clients: Sequence[ClientRow],
    title: str = "",
    pictures: bool = True,
) -> None:
    """Draw a finished run's plots and write its ``report.html``, when all other files are in its folder.

    An empty `title` stands for the name of the experiment; without `pictures` no plots are drawn, which take most of
    a small run's end.
    """
    num_models = len({row.found_cluster for row in clients} - {None})
    verdict, recovered = verdict_of(summary, clients, num_models)
    with naming(folder):
        plots = draw_plots(folder, lines, clients) if pictures else {}
    preset = f", preset {summary.experiment}" if title else ""
    html = render(
        _PAGE,
        name=f"{summary.experiment} {summary.strategy} seed {summary.seed}",
        above=f"{summary.strategy}, seed {summary.seed}{preset}",
        title=title or summary.experiment,
        summary=summary,
        verdict=verdict,
        recovered=recovered,
        figures=tiles_of(summary, lines),
        protections=protections(folder, lines, summary.left_out),
        plots=dict.fromkeys(_PLOTS) | plots,
        clusters=confusion(clients, num_models),
        scores=scores(summary),
        replies=replies(lines),
        clients=client_table(clients),
        num_clients=len(clients),
        config=(folder / "config.yaml").read_text(encoding="utf-8"),
    )
    # A page that is there is whole, and says that the run has ended.
    write_whole(folder / FINISHED, html)


def draw_plots(
    folder: Path, lines: Sequence[summaries.RoundLine], clients: Sequence[ClientRow]
) -> dict[str, dict[str, Any]]:
    """Draw a run's figures into its folder; return those that exist, for the page."""
    # matplotlib takes a second that only pictures need.
    from florets.reports.run_figures import evidence_figure, losses_of, run_figure

    pictures = {"curves": run_figure(lines)}
    evidence = summaries.last_evidence(lines)
    if evidence and evidence["scores"] and evidence["similarity"]:
        pictures["discovery"] = evidence_figure(evidence)
    pictures["loss_matrix"] = losses_of(folder, clients)
    images = {}
    for name, picture in pictures.items():
        if picture is not None:
            picture.save(folder / f"{name}.png")
            images[name] = embedded(folder / f"{name}.png")
    return images


def scores(summary: summaries.RunSummary) -> Table:
    """Return the table of the clients' scores at the end; nothing where one score is all there is."""
    if len(summary.final_metrics) < 2:
        return []
    rows: Table = [["score", "clients", *(name.replace("_", " ") for name in SCORE_FIGURES)]]
    for name, of in summary.final_metrics.items():
        cells = ["-" if (value := of[figure]) is None else f"{value:.4g}" for figure in SCORE_FIGURES]
        rows.append([name.replace("_", " "), f"{of['clients']:.0f}", *cells])
    return rows


def verdict_of(summary: summaries.RunSummary, clients: Sequence[ClientRow], num_models: int) -> tuple[str, bool]:
    """Return in one sentence whether the clusters were found, and whether they were."""
    known = [row.true_cluster for row in clients if row.true_cluster is not None and row.found_cluster is not None]
    truth, placed = set(known), len(known)
    if summary.final_ari is None:
        if placed < 2 or len(truth) > 1 or num_models == placed:
            return "", False
        if num_models == 1:
            return "One model serves all clients, and this task has no groups.", True
        return f"{num_models} clusters; this task has no groups.", False
    if summary.final_ari == 1:
        words = summaries.stability_words(summary)
        since = f"; the clustering is {words}" if words else ""
        of = f"{counted(len(truth), 'true cluster')} of {counted(placed, 'client')}"
        return f"The {of} are recovered exactly{since}.", True
    if num_models == 1:
        return f"One model serves all clients: the {len(truth)} true clusters are not separated.", False
    if num_models == placed:
        return f"Each client has its own model: the {len(truth)} true clusters are not used.", False
    some = summaries.ari_words(summary.final_ari_clients, summary.final_ari_of)
    return (
        f"{num_models} clusters, {len(truth)} true ones; adjusted Rand index "
        f"{summary.final_ari:.2f}{f' over {some}' if some else ''} (1 = recovered exactly, 0 = no better than "
        f"chance).",
        False,
    )


def tiles_of(summary: summaries.RunSummary, lines: Sequence[summaries.RoundLine]) -> list[Tile]:
    """Return the headline figures: name, value and a note; what is not known has no tile."""
    mean = "mean over clients"
    if words := summaries.unplaced_words(summary.final_unplaced, summary.final_num_clusters):
        mean = f"mean over those with a model; {words}"
    std = summaries.last(lines, "accuracy_std")
    first = summary.first_round_ari_90
    found = f"at least 0.9 from round {first}" if first is not None else "never reached 0.9"
    if clients := summaries.ari_words(summary.final_ari_clients, summary.final_ari_of):
        found = f"over {clients}; {found}"
    best = "of the best model for each true cluster, mean over clusters"
    # Of a test whose accuracy or error is known nobody reads the loss.
    tuned_loss = summary.final_tuned_loss if summary.final_tuned_accuracy is None else None
    cluster_loss = summary.final_cluster_loss if summary.final_cluster_error is None else None
    figures: list[tuple[str, float | None, str, str]] = [
        ("test accuracy", summary.final_accuracy, ".2%", mean if std is None else f"{mean}, std {100 * std:.1f}"),
        ("test loss", summary.final_loss if summary.final_accuracy is None else None, ".4g", mean),
        ("after fine-tuning", summary.final_tuned_accuracy, ".2%", mean),
        ("loss after fine-tuning", tuned_loss, ".4g", mean),
        ("test accuracy, worst tenth", summary.final_worst_tenth, ".2%", "mean over the lowest tenth of clients"),
        ("adjusted Rand index", summary.final_ari, ".3f", found),
        ("model error", summary.final_model_error, ".4g", "largest distance from a true model"),
        ("cluster error", summary.final_cluster_error, ".2%", best),
        ("cluster loss", cluster_loss, ".4g", best),
    ]
    tiles = [(name, format(value, form), note) for name, value, form, note in figures if value is not None]
    tiles.append(("rounds", str(summary.rounds), summaries.stability_words(summary)))
    traffic = f"{size(summary.bytes_down)} down, {size(summary.bytes_up)} up"
    tiles.append(("traffic", size(summary.bytes_down + summary.bytes_up), traffic))
    per_round = f"{duration(summary.seconds / summary.rounds)} a round" if summary.rounds else ""
    passes = f"{number(summary.gradient_passes)} gradients and {number(summary.loss_passes)} losses of samples"
    tiles.append(("clients' work", duration(summary.client_seconds), passes))
    tiles.append(("time", duration(summary.seconds), per_round))
    return tiles


def confusion(clients: Sequence[ClientRow], num_models: int) -> tuple[str, Table]:
    """Return a note and the clients counted by true cluster and model, or one row where the truth is not known."""
    # Models' clients by true cluster, None where that is not known.
    counts: dict[int | None, Counter[int]] = {}
    for row in clients:
        if row.found_cluster is not None:
            counts.setdefault(row.true_cluster, Counter())[row.found_cluster] += 1
    placed = sum(map(Counter.total, counts.values()))
    # Where each client has a model of its own (Local-only) the table would be a diagonal of ones.
    if not placed or num_models > MOST_COLUMNS or num_models == placed > 1:
        return "", []
    models = range(max(map(max, counts.values())) + 1)
    most, known = max(max(of.values()) for of in counts.values()), counts.keys() != {None}
    heads = map(("model {}" if len(models) <= 8 else "{}").format, models)
    rows: Table = [["true cluster" if known else "", *heads]]
    for true in sorted(counts, key=lambda true: (true is None, true or 0)):
        label = f"cluster {true}" if true is not None else ("not known" if known else "clients")
        of_row = [counts[true][model] for model in models]
        rows.append([label, *(shaded(str(n or ""), 0.06 + 0.34 * n / most if n else 0) for n in of_row)])
    note = (
        "Clients by true cluster (rows) and by the model that they were given." if known else "Clients of each model."
    )
    if without := len(clients) - placed:
        note += f" {counted(without, 'client')} without a model never took part, or sent nothing that could be used."
    return note, rows


def replies(lines: Sequence[summaries.RoundLine]) -> Table:
    """Count the replies of all rounds by outcome."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line["replies"])
    rows: Table = [["outcome", "replies"]]
    for name, count in counts.items():
        rows.append([name, count if name == "ok" or not count else (str(count), {"class": "amiss"})])
    return rows


def _shown(value: float | None, form: str = "") -> str:
    return "-" if value is None else format(value, form)


def client_table(clients: Sequence[ClientRow]) -> Table:
    """Return the table of clients, the first `MOST_CLIENTS` of them."""
    head: list[Cell] = ["client", "true cluster", "model", "examples", "test examples", "test loss", "test accuracy"]
    head += ["fine-tuned loss", "fine-tuned accuracy", "device"]
    table: Table = []
    for row in clients[:MOST_CLIENTS]:
        tests = row.score("test", "examples")
        cells: list[Cell] = [row.client, *map(_shown, (row.true_cluster, row.found_cluster, row.num_examples, tests))]
        for part in _SHOWN:
            cells += [_shown(row.score(part, "loss"), ".4g"), _shown(row.score(part, "accuracy"), ".1%")]
        table.append([*cells, row.device or "-"])
    # A column in which nothing is known (the true cluster of real clients) only takes room.
    columns = zip(head, *table, strict=True)
    kept = [cells for cells in columns if cells[0] == "client" or any(cell != "-" for cell in cells[1:])]
    return list(map(list, zip(*kept, strict=True)))
