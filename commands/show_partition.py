"""The command `florets show-partition`: build a task, count who holds what, and show it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from florets.conf.problems import ConfigError
from florets.conf.saved import run_folder
from florets.conf.schema import as_plain
from florets.engines.own_nodes import own_nodes
from florets.reports import partition
from florets.reports.console import say
from florets.reports.folder import private, whole_file, write_whole
from florets.reports.tables import markdown_table
from florets.server_app.build import build_task
from florets.server_app.data_agreement import agree_here, task_of
from florets.studies import one_run
from florets.task.imported import import_from
from florets.task.task import Task

HELP = """florets show-partition [experiment=<preset>] [key=value ...]
  Show which client holds which samples, for the keys of any experiment; nothing is trained. The terminal gets the
  clusters; <results_dir>/partitions/... gets partition.html, with a figure of all clients (partition.png), and
  partition.csv with the number of samples of each label on each client.

  Skew is how far a client's labels are from those of all clients together (and of its cluster), as the mean total
  variation distance: 0 for equal proportions, near 1 where clients share no label. Values of a regression count as
  tenths of all clients' values, from low to high."""

FOLDER = "partitions"


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if wrong := [text for text in arguments if text.startswith("-")]:
        raise ConfigError(f"{wrong[0]}: florets show-partition has no such option; it takes keys as a run does.")
    caller, overrides = Path.cwd(), list(arguments)
    import_from(caller)
    config = one_run.prepare(overrides, caller)
    nodes = own_nodes(config)
    own = agree_here(config, nodes)
    config = own.config
    task = build_task(config, own.table)
    try:
        held = _held(task, nodes)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    title, run = (
        f"{config.task.data} shared out by {config.task.partition}",
        f"{config.experiment}, seed {config.seed}",
    )
    say("\n".join([f"{title}, {run}", *own.lines, ""]))
    for name, value, note in partition.tiles_of(held):
        say(f"{name:20s}{value}{f' ({note})' if note else ''}")
    say(f"\n{markdown_table(partition.cluster_rows(held))}")
    folder = Path(config.results_dir) / FOLDER / run_folder(config, overrides)
    with private(bool(nodes)):
        folder.mkdir(parents=True, exist_ok=True)
        _write_counts(folder / "partition.csv", held)
        partition.draw_holdings(held, folder / "partition.png")
        settings = yaml.safe_dump(as_plain(config)["task"], sort_keys=False)
        write_whole(
            folder / "partition.html", partition.partition_page(held, title, run, settings, folder / "partition.png")
        )
    say(f"\nEach client: {folder / 'partition.html'}, partition.csv")
    return 0


def _held(task: Task, nodes: Sequence[dict[str, Any]]) -> partition.Holdings:
    if not nodes:
        return partition.holdings_of(task)
    tasks = [task_of(node, task.spec) for node in nodes]
    return partition.holdings_of_nodes(tasks, nodes)


def _write_counts(path: Path, held: partition.Holdings) -> None:
    """Write a row for each client: its cluster, and its samples of each label."""
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        heads = [f"{part}_{name}" for part in ("train", "test") for name in held.columns]
        writer.writerow(["client", "cluster", "train_samples", "test_samples", "own_fraction", *heads])
        for row, key in enumerate(held.keys):
            cluster = int(held.clusters[row])
            start = [key, cluster if cluster >= 0 else None, held.sizes[row], held.test[row].sum()]
            writer.writerow([*start, f"{held.own[row]:.6g}", *held.train[row], *held.test[row]])
