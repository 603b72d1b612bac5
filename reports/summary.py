"""Summary of a round (one line of ``rounds.jsonl``) and of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

from florets.reports.console import counted
from florets.reports.scores import WORST, finite, means, metrics_of
from florets.strategies.base.report import EVIDENCE, FIRST_PHASE, PRIVACY, STABLE_FROM, RoundReport
from florets.strategies.core.metrics import adjusted_rand_index
from florets.task.tested import Evaluation

ALL_RIGHT = 1.0 - 1e-9
"""ARI that is 1 but for rounding."""
ARI_RECOVERED = 0.9  # from there on the papers call the clusters recovered
ARI_ROUND = 10  # the CLoVE paper's tables give it

Curve = Literal["ari", "accuracy", "loss", "validation", "model_error", "cluster_error", "cluster_loss"]
"""Figures of a line that curves over the rounds are drawn of."""
Figure = Literal[
    Curve, "ari_participants", "accuracy_std", "loss_std", "train_loss",
    "tuned_accuracy", "tuned_accuracy_std", "tuned_loss", "tuned_loss_std",
]  # fmt: skip
"""All figures of a line that a round may lack."""


class Distances(NamedTuple):
    """How far the models are from the ground truth (`core.metrics.model_error`); None where not known or measured.

    `cluster_error`, `cluster_loss`: the lowest fraction of errors, and loss, that a model has on a true cluster's
    test data, mean over clusters.
    """

    model_error: float | None = None
    cluster_error: float | None = None
    cluster_loss: float | None = None


UNMEASURED = Distances()


class Curves(TypedDict):
    """A round as far as curves show it: all that papers store of one."""

    round: int
    ari: float | None
    accuracy: float | None
    loss: float | None
    validation: float | None
    model_error: float | None
    cluster_error: float | None
    cluster_loss: float | None


class RoundLine(Curves):
    """One line of ``rounds.jsonl``.

    A figure that is not known or not finite is None; no key is ever absent. The ARI is over all clients with an
    assignment (``ari_clients`` of ``ari_of``), or over this round's, as the CLoVE paper measures. Accuracy and loss
    are unweighted means over the ``evaluated`` clients, of which ``diverged`` have a loss that is not finite;
    ``_std`` is over clients, ``tuned_`` of fine-tuned copies. With several ``tries`` too few clients replied.
    """

    phase: str
    ari_clients: int
    ari_of: int
    ari_participants: float | None
    accuracy_std: float | None
    loss_std: float | None
    tuned_accuracy: float | None
    tuned_accuracy_std: float | None
    tuned_loss: float | None
    tuned_loss_std: float | None
    metrics: dict[str, dict[str, float | None]]
    evaluated: int
    diverged: int
    train_loss: float | None
    cluster_sizes: list[int]
    unplaced: int
    num_clusters: int
    stable: bool
    participants: int
    bytes_down: int
    bytes_up: int
    client_seconds: float
    gradient_passes: int
    loss_passes: int
    seconds: dict[str, float]
    replies: dict[str, int]
    rejected: dict[str, str]
    tries: int
    data_changed: int
    details: dict[str, Any]


def read_line(text: str) -> RoundLine:
    """Read a line that a run wrote."""
    line: RoundLine = json.loads(text)
    _check_keys(line, RoundLine.__required_keys__, "round's line")
    return line


def _check_keys(values: object, needed: Set[str], what: str) -> None:
    if not isinstance(values, dict) or set(values) != needed:
        found = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise ValueError(
            f"not a {what}: it needs the keys {sorted(needed)}, but has {found}. "
            "It was written by another version; run the experiment again."
        )


def read_lines(folder: Path) -> list[RoundLine]:
    """Return the rounds of a run, as ``rounds.jsonl`` in its folder has them; raise ValueError as `read_line`."""
    return list(map(read_line, (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()))


@dataclass(frozen=True)
class RunSummary:
    """The headline figures of one run; None is what is not known, not finite, or never reached.

    Accuracy and loss are unweighted means over clients of the assigned models on the clients' own test sets, with
    ``tuned`` after each client has fine-tuned a copy; ``final_metrics`` has each score's figures over clients
    (`scores.metrics_of`), ``final_pooled`` figures over all test records, and the ``clients`` that sent sums of them,
    ``final_validation`` the experiment's `measure` over all validation records in the last evaluated round.
    The ARI is over ``final_ari_clients`` of ``final_ari_of`` clients, those with an assignment; see `found_ari`.
    ``round_of_stability``: first round with a frozen clustering; past the last one where that one froze it.
    ``best_round``: with `patience` the round whose models and figures the run ends with.
    ``final_unplaced`` clients have no model at the end, ``left_out`` nodes could not take part.
    Bytes are payload of all rounds, server to clients and back; ``client_seconds`` and passes of samples through
    models, with and without a gradient, are of all rounds and clients, without tests.
    ``stopped``: by ``florets stop``; it can go on.
    """

    experiment: str
    strategy: str
    seed: int
    rounds: int
    final_accuracy: float | None
    final_loss: float | None
    final_ari: float | None
    ari_at_10: float | None
    first_round_ari_90: int | None
    round_of_stability: int | None
    bytes_down: int
    bytes_up: int
    seconds: float
    folder: str
    final_model_error: float | None
    final_cluster_error: float | None
    final_cluster_loss: float | None
    final_ari_clients: int | None
    final_ari_of: int | None
    left_out: list[str]
    final_unplaced: int
    warnings: list[str]
    discovery: str
    final_tuned_accuracy: float | None
    final_tuned_loss: float | None
    client_seconds: float
    gradient_passes: int
    loss_passes: int
    final_metrics: dict[str, dict[str, float | None]]
    final_pooled: dict[str, float]
    final_num_clusters: int | None
    best_round: int | None
    final_validation: float | None
    stopped: bool

    @property
    def final_worst_tenth(self) -> float | None:
        """Mean accuracy of the worst tenth of the clients at the end; None where there is none."""
        return self.final_metrics.get("accuracy", {}).get(WORST)

    def to_json(self) -> str:
        """Return the summary as an indented JSON object."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSummary:
        """Read a summary that ``to_json`` wrote; raise ValueError where it has other keys."""
        values = json.loads(text)
        _check_keys(values, {field.name for field in fields(cls)}, "run summary")
        return cls(**values)


def _ari(keys: Iterable[str], assignment: Mapping[str, int], truth: Mapping[str, int]) -> float | None:
    """Return the ARI over those of the clients that have both a true cluster and an assignment.

    None where the true clusters are fewer than two: there is nothing to tell apart, and the index would be 0 for
    whoever gives each client a model of its own, and 1 for one model.
    """
    if len(set(truth.values())) < 2:
        return None
    # Without a loop in Python: it is asked twice a round, of tens of thousands of clients.
    known = list(filter(truth.__contains__, filter(assignment.__contains__, keys)))
    return adjusted_rand_index([*map(truth.__getitem__, known)], [*map(assignment.__getitem__, known)])


def round_line(
    report: RoundReport,
    truth: Mapping[str, int],
    distances: Distances = UNMEASURED,
    clients: Collection[str] = (),
    data_changed: int = 0,
    validation: float | None = None,
) -> RoundLine:
    """Turn the report of a round into its line of ``rounds.jsonl``.

    `truth`: the true cluster of each client that reported one; `clients`: all clients' keys.
    """
    evaluations = list(report.evaluations.values())
    return {
        "round": report.server_round,
        "phase": report.phase,
        "ari": finite(_ari(report.assignment, report.assignment, truth)),
        "ari_clients": sum(map(truth.__contains__, report.assignment)),
        "ari_of": len(truth),
        "ari_participants": finite(_ari(report.participants, report.assignment, truth)),
        **means(evaluations),
        "metrics": metrics_of(evaluations),
        "evaluated": len(evaluations),
        "diverged": sum(not math.isfinite(test.loss) for test in evaluations),
        "train_loss": finite(report.train_loss),
        "model_error": finite(distances.model_error),
        "cluster_error": finite(distances.cluster_error),
        "cluster_loss": finite(distances.cluster_loss),
        "cluster_sizes": np.bincount(np.fromiter(report.assignment.values(), dtype=np.int64)).tolist(),
        "unplaced": len(clients) - sum(map(clients.__contains__, report.assignment)),
        "num_clusters": report.num_clusters,
        "stable": report.stable,
        "participants": len(report.participants),
        "bytes_down": report.bytes_down,
        "bytes_up": report.bytes_up,
        "client_seconds": round(report.work.seconds, 6),
        "gradient_passes": report.work.gradients,
        "loss_passes": report.work.losses,
        "seconds": {part: round(seconds, 6) for part, seconds in report.seconds.items()},
        "replies": dict(report.replies),
        "rejected": dict(report.rejected),
        "tries": report.tries,
        "data_changed": data_changed,
        "details": dict(report.details),
        "validation": validation,
    }


def covers_all(line: RoundLine) -> bool:
    """Return whether the round's ARI is over all clients whose true cluster is known."""
    return line["ari_clients"] == line["ari_of"]


def ari_words(some: int | None, all_of: int | None) -> str:
    """Return over how many clients an ARI is; nothing if over all."""
    return "" if some == all_of else f"{some} of {all_of} clients"


def privacy_words(line: RoundLine) -> list[str]:
    """Return what a run with `privacy.kind` has spent up to a round, of its line."""
    spent = line["details"].get(PRIVACY)
    if not spent:
        return []
    return [f"epsilon {spent['epsilon']:.3g} of {spent['target']:g} (delta {spent['delta']:.2g}, {spent['kind']})"]


def unplaced_words(unplaced: int, models: int | None) -> str:
    """Return how many clients a mean is not over because they have no model; nothing where all have one.

    Of one model alone they have not taken part yet: there is no group that they could be placed in.
    """
    return f"{counted(unplaced, 'client')} not {'sampled yet' if models == 1 else 'placed'}" if unplaced else ""


def found_ari(line: RoundLine) -> float | None:
    """Return what a round's ARI says of the clients; None where it has none, or only one of the anchors of phase 1.

    They are a handful with more data, chosen to be told apart; of everybody else's clusters their ARI says nothing.
    """
    return line["ari"] if line["phase"] != FIRST_PHASE or covers_all(line) else None


def last(lines: Sequence[RoundLine], name: Figure) -> float | None:
    """Return the last value of a figure that is not None, None where there is none."""
    for line in reversed(lines):
        value: float | None = line[name]
        if value is not None:
            return value
    return None


def last_evidence(lines: Sequence[RoundLine]) -> dict[str, Any] | None:
    """Return what the last round that looked for groups reported, None where none looked."""
    for line in reversed(lines):
        if evidence := line["details"].get(EVIDENCE):
            return dict(evidence)
    return None


def round_seconds(line: RoundLine) -> float:
    """Return how long a round took: its total, or the sum of its parts where no total was taken."""
    seconds = line["seconds"]
    return seconds["total"] if "total" in seconds else float(sum(seconds.values()))


def reaches(line: RoundLine, level: float) -> bool:
    """Return whether the clusters are found to at least this ARI in a round."""
    return (ari := found_ari(line)) is not None and ari >= level


def stability_words(summary: RunSummary) -> str:
    """Return from when on the clustering was frozen, and which round's models are the last; nothing of either."""
    stable, best = summary.round_of_stability, summary.best_round
    when = "after" if stable and stable > summary.rounds else "from"
    words = [f"stable {when} round {min(stable, summary.rounds)}"] if stable is not None else []
    return ", ".join(words + ([f"models of round {best}"] if best not in (None, summary.rounds) else []))


def summarise(
    lines: Sequence[RoundLine],
    *,
    experiment: str,
    strategy: str,
    seed: int,
    folder: str,
    evaluations: Mapping[str, Evaluation] | None = None,
    left_out: Sequence[str] = (),
    warnings: Sequence[str] = (),
    best_round: int | None = None,
    stopped: bool = False,
    pooled: Mapping[str, float] | None = None,
) -> RunSummary:
    """Summarise a run from its lines, and from the evaluation at its end where there was one.

    Without `evaluations`, the last one of each client, the last evaluated round counts. `best_round` is the round
    whose models the run ends with, None the last one; `left_out` are nodes that could not take part; `pooled` are
    figures over all test records.
    """
    ended = lines[:best_round]
    tested: RoundLine | None = None
    measured: RoundLine | None = None
    for line in ended:
        tested = line if line["evaluated"] else tested
        measured = measured if line["ari"] is None else line
    stable = next((line["round"] for line in lines if line["stable"]), None)
    if stable is None and lines:
        stable = lines[-1]["details"].get(STABLE_FROM)
    if evaluations or tested is None:
        tests = list((evaluations or {}).values())
        mean, metrics = means(tests), metrics_of(tests)
    else:
        mean, metrics = tested, tested["metrics"]
    return RunSummary(
        experiment=experiment,
        strategy=strategy,
        seed=seed,
        rounds=len(lines),
        final_accuracy=mean["accuracy"],
        final_loss=mean["loss"],
        final_tuned_accuracy=mean["tuned_accuracy"],
        final_tuned_loss=mean["tuned_loss"],
        final_ari=None if measured is None else measured["ari"],
        final_ari_clients=None if measured is None else measured["ari_clients"],
        final_ari_of=None if measured is None else measured["ari_of"],
        ari_at_10=next((found_ari(line) for line in lines if line["round"] == ARI_ROUND), None),
        first_round_ari_90=next((line["round"] for line in lines if reaches(line, ARI_RECOVERED)), None),
        round_of_stability=stable,
        bytes_down=sum(line["bytes_down"] for line in lines),
        bytes_up=sum(line["bytes_up"] for line in lines),
        seconds=sum(round_seconds(line) for line in lines),
        folder=folder,
        left_out=list(left_out),
        final_unplaced=ended[-1]["unplaced"] if ended else 0,
        warnings=list(warnings),
        discovery=(last_evidence(lines) or {}).get("text", ""),
        client_seconds=sum(line["client_seconds"] for line in lines),
        gradient_passes=sum(line["gradient_passes"] for line in lines),
        loss_passes=sum(line["loss_passes"] for line in lines),
        final_metrics=metrics,
        final_pooled=dict(pooled or {}),
        final_num_clusters=ended[-1]["num_clusters"] if ended else None,
        final_model_error=last(ended, "model_error"),
        final_cluster_error=last(ended, "cluster_error"),
        final_cluster_loss=last(ended, "cluster_loss"),
        best_round=best_round,
        stopped=stopped,
        final_validation=None if tested is None else tested["validation"],
    )
