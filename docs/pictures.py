"""Write docs/pictures.json, from which the site's build draws a picture of each method: `python docs/pictures.py`.

A run of each method takes 8 minutes in all: rotated digits of 20 clients in four groups, 20 rounds, seed 0.
"""

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import florets
from florets.strategies.registry import strategy_names

PLACE = Path(__file__).with_name("pictures.json")
_MATRICES = ("losses", "shares", "distances")


def _short(value: float) -> float | None:
    return float(f"{value:.3g}") if math.isfinite(value) else None


def _letters(models: list[float]) -> str:
    """One character for the model of each client: a digit or a letter, a dot where it has none."""
    return "".join("." if math.isnan(m) or m < 0 else "0123456789abcdefghijklmnopqrstuvwxyz"[int(m)] for m in models)


def _quickstart(strategy: str, folder: str) -> dict[str, Any]:
    options = {"strategy": {"name": strategy, **({"fraction_train": 0.4} if strategy == "fedgwc" else {})}}
    run = florets.run(
        "quickstart",
        **options,
        seed=0,
        num_rounds=20,
        quiet=True,
        pictures=False,
        loss_matrix=False,
        results_dir=folder,
    )
    found: dict[str, Any] = {
        "accuracy": [_short(100 * value) for value in run.rounds["accuracy"]],
        "clients": [_short(100 * value) for value in run.clients["test_accuracy"]],
        "groups": [int(group) for group in run.clients["true_cluster"]],
        "models": [_letters(row) for row in run.assignments.to_numpy(float).tolist()],
    }
    if (run.folder / "embeddings").exists():
        compared = run.embedding()
        found |= {"round": compared.round, "kind": compared.kind}
        rows = compared.vectors if compared.kind in _MATRICES else compared.placed()[0]
        found["rows"] = [[_short(float(value)) for value in row] for row in rows]
    return found


def _regression(strategy: str, folder: str) -> list[float | None]:
    """Distance from the true models over the rounds, of the two-phase paper's Figure 1."""
    run = florets.run(
        "mixed_regression/a", strategy=strategy, seed=0, num_rounds=60, eval_every=1, quiet=True, pictures=False,
        loss_matrix=False, results_dir=folder,
    )  # fmt: skip
    return [_short(value) for value in run.rounds["model_error"]]


def main() -> None:
    """Run every method, or those named on the command line, and write their data."""
    known: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else {}
    for name in sys.argv[1:] or strategy_names():
        with tempfile.TemporaryDirectory() as folder:
            if name == "two_phase":
                known[name] = {one: _regression(one, folder) for one in ("two_phase", "ifca", "one_shot", "oracle")}
            else:
                known[name] = _quickstart(name, folder)
    lines = (f"{json.dumps(name)}: {json.dumps(data, separators=(',', ':'))}" for name, data in known.items())
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
