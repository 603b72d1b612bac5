"""Compare runs with another implementation, round by round: write our side, and tabulate the differences.

``python -m benchmarks.agreement write OURS.npz key=value ...`` runs an experiment of Florets, each client alone, and
writes the clients' data, the first models, and of every round the vectors that clients were compared by, assignments
and models. The other code is run on the same data from the same first models, by a script that writes the arrays
``compared``, ``assignment`` and ``models`` of the same shapes. ``python -m benchmarks.agreement compare OURS.npz
THEIRS.npz`` prints the largest differences of each round as a Markdown table. See papers/agreement.md.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from benchmarks.measuring import started
from florets.conf.compose import compose
from florets.engines.engine import client_side
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport

Arrays = dict[str, NDArray[Any]]


def florets_side(overrides: list[str]) -> Arrays:
    """Return what a run with T rounds, M clients and K models of R values had and did.

    ``x/<i>``, ``y/<i>``, ``x_test/<i>``, ``y_test/<i>`` of client i and its true cluster in ``clusters`` (M,);
    ``names`` of the entries of a model's R values and ``shapes``, as texts; ``models`` (T + 1, K, R), the first ones
    first; ``assignment`` (T, M), -1 for none; ``compared`` (T, M, d), NaN where a client was not compared.
    """
    config = compose([*overrides, "batch_clients=off"])
    task, side = build_task(config), client_side()
    grid = LocalGrid(side.app, config.num_clients, None, side.in_blocks, side.adopt)
    config = grid.prepare(config, task)
    first = Models(build_models(config, task))
    found: Arrays = {
        "names": np.array([entry.name for entry in first.layout.entries]),
        "shapes": np.array(["x".join(map(str, entry.shape)) for entry in first.layout.entries]),
    }
    clients = [task.client(number) for number in range(config.num_clients)]
    for number, client in enumerate(clients):
        for name in ("x_train", "y_train", "x_test", "y_test"):
            found[f"{name.removesuffix('_train')}/{number}"] = getattr(client, name).numpy()
    reports, banks = list[RoundReport](), [first.bank]

    def on_round(report: RoundReport, arrays: ArrayRecord) -> None:
        reports.append(report)
        banks.append(Models(arrays).bank)

    started(build_strategy(config, task), config, task, grid, on_round)
    width = max((one.compared.vectors.shape[1] for one in reports if one.compared), default=0)
    compared = np.full((len(reports), len(clients), width), np.nan)
    assignment = np.full((len(reports), len(clients)), -1)
    for number, report in enumerate(reports):
        for key, model in report.assignment.items():
            assignment[number, int(key)] = model
        if report.compared is not None:
            vectors = report.compared.vectors
            compared[number, [int(key) for key in report.compared.clients], : vectors.shape[1]] = vectors
    return found | {
        "clusters": np.array([task.cluster_of(number) for number in range(len(clients))]),
        "compared": compared,
        "assignment": assignment,
        "models": np.stack(banks),
    }


def table(ours: Arrays, theirs: Arrays) -> str:
    """Return for each round the largest differences of vectors and models, and how many clients' models differ."""
    lines = ["| round | vectors | clients in another cluster | models |", "|---|---|---|---|"]
    for number in range(min(len(ours["assignment"]), len(theirs["assignment"]))):
        one, other = ours["compared"][number], theirs["compared"][number]
        width = min(one.shape[1], other.shape[1])
        vectors = np.abs(one[:, :width] - other[:, :width])
        both = vectors[np.isfinite(vectors)]
        moved = int((ours["assignment"][number] != theirs["assignment"][number]).sum())
        models = np.abs(ours["models"][number + 1] - theirs["models"][number + 1]).max()
        shown = f"{both.max():.1e}" if both.size else "-"
        lines.append(f"| {number + 1} | {shown} | {moved} | {models:.1e} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("ours", type=Path)
    parser.add_argument("others", nargs="+", help="write: the keys of the run; compare: the other side's file")
    given = parser.parse_args()
    if given.what == "write":
        np.savez(given.ours, **florets_side(given.others))  # type: ignore[arg-type]  # names are no keywords
        return
    with np.load(given.ours) as ours, np.load(given.others[0]) as theirs:
        print(table(dict(ours), dict(theirs)))


if __name__ == "__main__":
    main()
