"""Rows of a run's page and model card on its protections against hostile clients and curious servers."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from florets.reports.summary import RoundLine, privacy_words
from florets.strategies.base.report import QUARANTINE, SUMMED, named
from florets.strategies.core.accountant import epsilon_of
from florets.strategies.layers.budget import BUDGET_FILE, read_budget


def protections(folder: Path, lines: Sequence[RoundLine], left_out: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and state of each protection that a run in a folder had; none where all were off."""
    config: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")) or {}
    rows, end = [], lines[-1:]
    if config.get("robust", "none") != "none":
        rows.append(
            ("robust average", f"{config['robust']}, against {config['hostile']:.0%} hostile clients in a group")
        )
        for line in end:
            held = line["details"].get(QUARANTINE, {}).get("clients", [])
            if held or max(line["num_clusters"] for line in lines) > 1:
                rows.append(("in quarantine", named(held) or "nobody"))
    if spent := [words for line in end for words in privacy_words(line)]:
        rows.append(("differential privacy", f"{spent[0]}; covers models, not scores and groups shown here"))
    if config.get("secure_aggregation"):
        masked = [line["round"] for line in lines if SUMMED in line["details"]]
        begun = f", from round {masked[0]} on" if masked else ": all updates came in clear"
        rows.append(("masked updates", f"{len(masked)} of {len(lines)} rounds{begun}"))
    if left_out:
        rows.append(("nodes left out", f"{named(left_out)}; run.log says why"))
    return rows


def spent_together(folders: Iterable[object]) -> str:
    """Return what several private runs have spent of one client's data; nothing for fewer than two."""
    ledgers = [Path(folder) / BUDGET_FILE for folder in folders if isinstance(folder, str | Path)]
    try:
        budgets = [read_budget(path) for path in ledgers if path.is_file()]
    except ValueError as error:
        return f"Privacy: {error}."
    if len(budgets) < 2:
        return ""
    if all(budget.most is None for budget in budgets):
        keys = {key for budget in budgets for key in budget.spent}
        most = max((sum(budget.spent.get(key, 0.0) for budget in budgets) for key in keys), default=0.0)
        delta = min(budget.delta for budget in budgets)
        epsilon = epsilon_of(math.sqrt(most), delta) if most else 0.0
    else:
        # Not of Gaussian releases alone: both add up.
        epsilon, delta = sum(budget.reached for budget in budgets), sum(budget.delta for budget in budgets)
    return (
        f"Privacy: on the same data the {len(budgets)} private runs together spend epsilon {epsilon:.3g} (delta "
        f"{delta:.2g}), each at most {max(budget.epsilon for budget in budgets):g}. A choice among them by scores, "
        "which have no noise, is not covered."
    )
