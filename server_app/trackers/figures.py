"""A round's figures by name, as curves are drawn of them."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from florets.reports.client_scores import FIGURES, scores_of
from florets.reports.summary import RoundLine, RunSummary, round_seconds
from florets.server_app.trackers.protocol import ClientFigures
from florets.strategies.base.report import RoundReport

MOST_CLIENTS = 100
"""With more clients than this only figures over them (quantiles) are logged, and no curves of single clients."""

_OF_A_LINE = (
    *("ari", "ari_participants", "accuracy", "accuracy_std", "loss", "loss_std"),
    *("tuned_accuracy", "tuned_loss", "validation", "train_loss", "model_error", "cluster_error", "cluster_loss"),
    *("num_clusters", "participants", "evaluated", "diverged", "unplaced", "tries", "data_changed"),
    *("bytes_down", "bytes_up", "client_seconds", "gradient_passes", "loss_passes"),
)


def round_figures(line: RoundLine) -> dict[str, float]:
    """Return the figures of a round that are known, by name: ``ari``, ``seconds/train``, ``scores/loss/q90``, ..."""
    named: dict[str, Any] = {name: line.get(name) for name in _OF_A_LINE}
    named |= {"round": line["round"], "stable": line["stable"], "rejected": len(line["rejected"])}
    named["seconds"] = round_seconds(line)
    named |= {f"seconds/{part}": seconds for part, seconds in line["seconds"].items() if part != "total"}
    named |= {f"replies/{kind}": number for kind, number in line["replies"].items()}
    named |= {
        f"scores/{score}/{name}": figures[name] for score, figures in line["metrics"].items() for name in FIGURES
    }
    return {name: float(value) for name, value in named.items() if value is not None}


def final_figures(summary: RunSummary) -> dict[str, float]:
    """Return the figures at the end of a run that are numbers: ``final/accuracy``, ``final/bytes_down``, ..."""
    return {
        f"final/{name.removeprefix('final_')}": float(value)
        for name, value in vars(summary).items()
        if isinstance(value, int | float) and name not in ("seed", "rounds")
    }


def client_figures(report: RoundReport) -> ClientFigures:
    """Return the figures of each client that has a model or was tested in a round."""
    found: dict[str, dict[str, float]] = {key: {"cluster": model} for key, model in report.assignment.items()}
    for key, evaluation in report.evaluations.items():
        figures = found.setdefault(key, {})
        figures |= scores_of(evaluation)
        for prefix, other in (("validation", evaluation.validation), ("tuned", evaluation.tuned)):
            if other is not None:
                figures |= {f"{prefix}_{name}": value for name, value in scores_of(other).items()}
    return found


def curves(clients: ClientFigures) -> dict[str, float]:
    """Return each client's figures as ``clients/<key>/<figure>``; none for more than `MOST_CLIENTS` clients."""
    if len(clients) > MOST_CLIENTS:
        return {}
    return {f"clients/{_safe(key)}/{name}": value for key, of in clients.items() for name, value in of.items()}


def _safe(key: str) -> str:
    """Return a client's key as a part of a name; other machines choose it, and stores take few characters."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", key)
    return safe if safe == key else f"{safe[:80]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def short_text(value: Any, longest: int = 500) -> str:
    """Return the value of a parameter as a text of bounded length."""
    text = str(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def as_param(value: Any) -> bool | int | float | str:
    """Return the value of a parameter as stores take it: numbers and truth values as they are, the rest as text."""
    return value if isinstance(value, bool | int | float) else short_text(value)


def params(values: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return parameters by name, each as `as_param`; what is null or empty is left out."""
    return {name: as_param(value) for name, value in values.items() if value not in (None, "", [], {})}
