"""The command `florets show-partition`: build a task, count who holds what, tell it and draw it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from florets.conf.problems import ConfigError
from florets.conf.saved import run_folder
from florets.conf.schema import Config, as_plain
from florets.reports.console import counted, say
from florets.reports.folder import whole_file, write_whole
from florets.reports.partition import Holdings, holdings_of, holdings_of_nodes, partition_page
from florets.reports.report import embedded
from florets.reports.tables import markdown_table
from florets.server_app import jobs
from florets.server_app.build import build_task
from florets.server_app.data_agreement import agree_here
from florets.server_app.own_nodes import own_nodes
from florets.task.task import Task
from florets.task.wire import kinds

HELP = """florets show-partition [experiment=<preset>] [key=value ...]
  Show which client holds which samples, for the keys of any experiment; nothing is trained. The terminal gets the
  clusters and the clients; <results_dir>/partitions/... gets partition.html with pictures, partition.csv with the
  number of samples of each label on each client, partition.png, and for images samples.png: what each cluster sees.

  Skew is how far a client's labels are from those of all clients together (and of its cluster), as the mean total
  variation distance: 0 for equal proportions, near 1 where clients share no label. Values of a regression count as
  tenths of all clients' values, from low to high."""

FOLDER = "partitions"
_MOST_TOLD = 40
_MOST_ON_PAGE = 300
_BARS = "·▁▂▃▄▅▆▇█"


def main(arguments: Sequence[str], caller: Path) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    arguments
        `key=value` texts, as for a run.
    caller
        The working directory that relative folders are meant from.

    Raises
    ------
    ConfigError
        If a key is wrong, or the data cannot be shared out so.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    overrides = [text for text in arguments if text != "--debug"]
    if wrong := [text for text in overrides if text.startswith("-")]:
        raise ConfigError([f"{wrong[0]}: florets show-partition has no such option; it takes keys as a run does."])
    config = jobs.prepare(overrides, caller)
    nodes = own_nodes(config)
    own = agree_here(config, nodes)
    config = own.config
    task = build_task(config, own.table)
    try:
        held = _held(task, nodes)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    for line in _lines(config, held):
        say(line)
    folder = Path(config.results_dir) / FOLDER / run_folder(config, overrides)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, config, task, held)
    say(f"\nPictures and tables: {folder / 'partition.html'}")
    return 0


def _held(task: Task, nodes: Sequence[dict[str, Any]]) -> Holdings:
    if not nodes:
        return holdings_of(task)
    tasks = [Task(task.spec.at_node(str(node["data-dir"]), node.get(kinds.ROWS_OF))) for node in nodes]
    return holdings_of_nodes(tasks, nodes)


def _title(config: Config) -> str:
    return f"{config.task.data} shared out by {config.task.partition}"


def _span(values: Sequence[int] | np.ndarray[Any, Any]) -> str:
    low, high = int(np.min(values)), int(np.max(values))
    return f"{low}" if low == high else f"{low} to {high}, median {np.median(values):g}"


def tiles(held: Holdings) -> list[tuple[str, str, str]]:
    """Return the figures of the whole: name, value and a note."""
    known = sorted({int(cluster) for cluster in held.clusters if cluster >= 0})
    of_labels = (held.train > 0).sum(axis=1)
    reused = f"{held.repeated} of {held.distinct} samples on several clients" if held.repeated else ""
    found = [
        ("clients", f"{len(held.keys)}", ""),
        ("clusters", f"{len(known)}" if known else "not known", ""),
        ("train samples", f"{int(held.sizes.sum())}", reused),
        ("of a client", _span(held.sizes), f"tested on {_span(held.test.sum(axis=1))}"),
        (f"{_what(held)} of a client", _span(of_labels), f"of {len(held.columns)}"),
        ("skew", f"{held.skew(slice(None)):.2f}", f"{_within(held):.2f} within clusters" if known else ""),
    ]
    if (held.own < 1).any():
        found.append(("of its own cluster", f"{held.own.mean():.0%}", "the rest is of the others"))
    return found


def _what(held: Holdings) -> str:
    return "labels" if held.has_labels else "tenths"


def _within(held: Holdings) -> float:
    members = [np.flatnonzero(held.clusters == cluster) for cluster in np.unique(held.clusters)]
    return float(np.average([held.skew(rows, rows) for rows in members], weights=[len(rows) for rows in members]))


def cluster_rows(held: Holdings) -> list[list[str]]:
    """Return the table of clusters, its head first."""
    rows = [["cluster", "clients", "train samples", "of a client", _what(held), "skew within", "changes"]]
    for cluster in np.unique(held.clusters):
        members = np.flatnonzero(held.clusters == cluster)
        rows.append(
            [
                f"{cluster}" if cluster >= 0 else "not known",
                f"{len(members)}",
                f"{int(held.sizes[members].sum())}",
                _span(held.sizes[members]),
                f"{int((held.train[members].sum(axis=0) > 0).sum())}",
                f"{held.skew(members, members):.2f}",
                held.changes[int(cluster)],
            ]
        )
    return rows


def client_rows(held: Holdings, most: int) -> list[list[str]]:
    """Return the table of the first clients, its head first; labels as bars, each client's largest the tallest."""
    rows = [["client", "cluster", "train", "test", f"{_what(held)} {held.columns[0]} to {held.columns[-1]}"]]
    for row, key in enumerate(held.keys[:most]):
        heights = np.ceil(held.train[row] / held.train[row].max() * (len(_BARS) - 1)).astype(int)
        cluster = int(held.clusters[row])
        rows.append(
            [
                key,
                str(cluster) if cluster >= 0 else "-",
                str(held.sizes[row]),
                str(held.test[row].sum()),
                "".join(_BARS[height] for height in heights),
            ]
        )
    return rows


def _lines(config: Config, held: Holdings) -> list[str]:
    """Return what the terminal shows."""
    lines = [f"{_title(config)}, {config.experiment}, seed {config.seed}", ""]
    lines += [f"{name:20s}{value}{f' ({note})' if note else ''}" for name, value, note in tiles(held)]
    lines += ["", markdown_table(cluster_rows(held)), "", markdown_table(client_rows(held, _MOST_TOLD))]
    if len(held.keys) > _MOST_TOLD:
        lines.append(f"... and {counted(len(held.keys) - _MOST_TOLD, 'client')} more (partition.csv)")
    return lines


def _write(folder: Path, config: Config, task: Task, held: Holdings) -> None:
    """Write table, pictures and page."""
    from florets.reports.partition import draw_holdings, draw_samples  # matplotlib takes a second

    with whole_file(folder / "partition.csv") as file:
        writer = csv.writer(file, lineterminator="\n")
        heads = [f"{part}_{name}" for part in ("train", "test") for name in held.columns]
        writer.writerow(["client", "cluster", "train_samples", "test_samples", "own_fraction", *heads])
        for row, key in enumerate(held.keys):
            cluster = int(held.clusters[row])
            counts = [*held.train[row], *held.test[row]]
            start = [key, cluster if cluster >= 0 else None, held.sizes[row], held.test[row].sum()]
            writer.writerow([*start, f"{held.own[row]:.6g}", *counts])
    draw_holdings(held, folder / "partition.png")
    heading = f"{_what(held).capitalize()} and sizes"
    note = "Dark: a large fraction of the client's samples. Bars: how many it has, in the colours of the clusters."
    pictures = [{"heading": heading, "note": note, **embedded(folder / "partition.png")}]
    if not task.is_own and draw_samples(task, folder / "samples.png"):
        note = "One client of each cluster; what the cluster does to inputs and labels is done."
        pictures.append({"heading": "What clusters see", "note": note, **embedded(folder / "samples.png")})
    more = len(held.keys) > _MOST_ON_PAGE
    tables = [
        {"heading": "Clusters", "note": "", "rows": cluster_rows(held)},
        {
            "heading": f"Clients ({len(held.keys)})",
            "note": f"The first {_MOST_ON_PAGE}; all are in partition.csv." if more else "",
            "rows": client_rows(held, _MOST_ON_PAGE),
        },
    ]
    settings = yaml.safe_dump(as_plain(config)["task"], sort_keys=False)
    above = f"{config.experiment}, seed {config.seed}"
    write_whole(
        folder / "partition.html", partition_page(_title(config), above, tiles(held), pictures, tables, settings)
    )
