"""Values of a finished run: what all measures are made of, read from its folder."""

from pathlib import Path
from typing import Any

from florets import strategies
from florets.reports.summary import ARI_RECOVERED, ARI_ROUND, RunSummary, read_lines
from florets.server_app.reproduce.mixtures import read_mixtures
from florets.strategies.base.report import EVIDENCE
from florets.task.fingerprint import fingerprint

ALL_RIGHT = 1.0 - 1e-9
"""ARI that is 1 but for rounding."""

_SERVER_PARTS = ("cluster", "discover", "aggregate", "evaluate", "total")
"""Parts of a round that are not the clients' work for training; in process all the rest is."""

_TARGET = 0.6
"""Accuracy that the CFL-GP paper counts the cost of (Fig. 2e)."""

Values = dict[str, Any]
"""Results in a finished run's record; see `values_of`."""


def values_of(folder: Path, summary: RunSummary, cpu: float | None = None, wall: float | None = None) -> Values:
    """Return what all measures are made of, from a finished run's folder.

    Parameters
    ----------
    cpu, wall
        CPU and wall time of the whole run in seconds, None where they are not known: it ended in another process
        than it began in.
    """
    lines = read_lines(folder)
    evidence = [line["details"][EVIDENCE] for line in lines if EVIDENCE in line["details"]]
    clients = sum(seconds for line in lines for part, seconds in line["seconds"].items() if part not in _SERVER_PARTS)
    return {
        "accuracy": summary.final_accuracy,
        "loss": summary.final_loss,
        "ari": summary.final_ari,
        "ari_at_10": summary.ari_at_10,
        "first_round_ari_90": summary.first_round_ari_90,
        "groups": lines[-1]["num_clusters"] if lines else None,
        "frozen_from": summary.round_of_stability,
        "model_error": summary.final_model_error,
        "cluster_error": summary.final_cluster_error,
        "cluster_loss": summary.final_cluster_loss,
        **_at_accuracy(lines, _TARGET),
        **_of_participants(lines),
        "worst_tenth": summary.final_worst_tenth,
        "tuned_accuracy": summary.final_tuned_accuracy,
        "rounds_of_ari_1": [line["round"] for line in lines if (line.get("ari") or 0.0) >= ALL_RIGHT],
        "bytes": summary.bytes_down + summary.bytes_up,
        "gradient_passes": summary.gradient_passes,
        "mixtures": read_mixtures(folder),
        "verdict": evidence[-1].get("verdict") if evidence else None,
        "cpu_seconds": cpu,
        # The rounds' parts are wall time, of which other processes take a part.
        "client_seconds": None if cpu is None or not wall else clients * min(1.0, cpu / wall),
        "code": _code(),
        "warnings": summary.warnings,
    }


def _at_accuracy(lines: list[dict[str, Any]], target: float) -> Values:
    """Return the first tested round with this mean accuracy, and the megabytes sent and received up to it."""
    sent = 0
    for line in lines:
        sent += line["bytes_down"] + line["bytes_up"]
        if line["accuracy"] is not None and line["accuracy"] >= target:
            return {"first_round_accuracy_60": line["round"], "bytes_to_accuracy_60": sent}
    return {}


def _of_participants(lines: list[dict[str, Any]]) -> Values:
    """Return the ARI over each round's participants alone: at the end, in round 10, and the first round of 0.9."""
    known = {line["round"]: ari for line in lines if (ari := line.get("ari_participants")) is not None}
    return {
        "ari_participants": known[max(known)] if known else None,
        "ari_participants_at_10": known.get(ARI_ROUND),
        "first_round_ari_participants_90": next((r for r, ari in known.items() if ari >= ARI_RECOVERED), None),
    }


def _code() -> str:
    """Return a hash of the code that decides a run's results, so that a table can say where versions are mixed."""
    root = Path(strategies.__file__).parents[1]
    return fingerprint(tuple(root / name for name in ("client_app", "task", "strategies")))
