"""Summary of a round (one line of ``rounds.jsonl``) and of a run."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from florets.reports.console import counted
from florets.reports.scores import WORST, finite, means, metrics_of, tuned
from florets.strategies.base.report import EVIDENCE, FIRST_PHASE, PRIVACY, STABLE_FROM, Evaluation, RoundReport
from florets.strategies.core.metrics import adjusted_rand_index

ARI_RECOVERED = 0.9  # from there on the papers call the clusters recovered
ARI_ROUND = 10  # the CLoVE paper's tables give it

FIGURES = ("model_error", "cluster_error", "cluster_loss")
"""Keys of a line that hold distances from the ground truth."""

RoundLine = dict[str, Any]
"""One line of ``rounds.jsonl``; ``round_line`` says what it holds."""


def read_lines(folder: Path) -> list[RoundLine]:
    """Return the rounds of a run, as ``rounds.jsonl`` in its folder has them."""
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class RunSummary:
    """The headline figures of one run; None is what is not known, not finite, or never reached.

    Parameters
    ----------
    final_accuracy, final_loss
        Unweighted means over clients of the assigned models on the clients' own test sets; ``final_tuned_``: after
        each client has fine-tuned a copy.
    final_ari, ari_at_10
        Over the clients with an assignment, in the last round and in round 10; ``final_ari_clients`` of
        ``final_ari_of`` clients.
    first_round_ari_90
        First round with an ARI of at least 0.9, see `found_ari`.
    round_of_stability
        First round in which the clustering is frozen; one more than ``rounds`` where the last round froze it.
    bytes_down, bytes_up, seconds
        Payload of all rounds, server to clients and back, and the sum of their times.
    best_round
        With `patience`: the round whose models the run ends with, and whose figures the final ones are.
    left_out
        Nodes that were online and could not take part.
    final_unplaced, final_num_clusters
        Clients without a model at the end, and models that clients have then.
    client_seconds, gradient_passes, loss_passes
        Of all rounds and clients: wall time, and samples passed through models with and without a gradient; no tests.
    final_metrics
        Of each score, the figures over the clients at the end, see `scores.metrics_of`.
    final_validation
        The experiment's `measure` over all validation records in the last evaluated round.
    stopped
        Ended by ``florets stop``: the run can go on.
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
    final_model_error: float | None = None
    final_cluster_error: float | None = None
    final_cluster_loss: float | None = None
    final_ari_clients: int | None = None
    final_ari_of: int | None = None
    left_out: list[str] = field(default_factory=list)
    final_unplaced: int = 0
    warnings: list[str] = field(default_factory=list)
    discovery: str = ""
    final_tuned_accuracy: float | None = None
    final_tuned_loss: float | None = None
    client_seconds: float = 0.0
    gradient_passes: int = 0
    loss_passes: int = 0
    final_metrics: dict[str, dict[str, float | None]] = field(default_factory=dict)
    final_num_clusters: int | None = None
    best_round: int | None = None
    final_validation: float | None = None
    stopped: bool = False

    @property
    def megabytes(self) -> float:
        """Payload in both directions."""
        return (self.bytes_down + self.bytes_up) / 1e6

    @property
    def final_worst_tenth(self) -> float | None:
        """Mean accuracy of the worst tenth of the clients at the end; None where there is none."""
        return self.final_metrics.get("accuracy", {}).get(WORST)

    def to_json(self) -> str:
        """Return the summary as an indented JSON object."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSummary:
        """Read a summary that ``to_json`` wrote.

        Raises
        ------
        ValueError
            If the text is not a JSON object with the summary's keys.
        """
        values = json.loads(text)
        needed = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or set(values) != needed:
            found = sorted(values) if isinstance(values, dict) else type(values).__name__
            raise ValueError(
                f"not a run summary: it needs the keys {sorted(needed)}, but has {found}. "
                "It was written by another version; run the experiment again."
            )
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
    figures: Mapping[str, float | None] | None = None,
    clients: Collection[str] = (),
    data_changed: int = 0,
) -> RoundLine:
    """Turn the report of a round into its line of ``rounds.jsonl``.

    A value that is not known or not finite is None, never absent.

    Parameters
    ----------
    truth, figures
        True cluster of each client that reported one; what `florets.server_app.final_models` knows of the round.
    clients, data_changed
        All clients' keys; how many have other data than in the round before.

    Returns
    -------
    dict
        ``ari`` is over all clients with an assignment (``ari_clients`` of ``ari_of``), ``ari_participants`` over this
        round's, as the CLoVE paper measures. ``accuracy`` and ``loss`` are unweighted means over the ``evaluated``
        clients, of which ``diverged`` have a loss that is not finite; ``_std`` is over clients, ``tuned_`` of
        fine-tuned copies, ``metrics`` every score's figures. ``cluster_sizes`` counts the clients of each model.
        ``client_seconds``, ``gradient_passes`` and ``loss_passes`` are `RoundReport.work`; ``rejected`` has reasons
        by client, ``tries`` is above 1 where too few clients replied, ``details`` is the algorithm's own.
    """
    evaluations = list(report.evaluations.values())
    losses = [e.loss for e in evaluations]
    sizes = Counter(report.assignment.values())
    return {
        "round": report.server_round,
        "phase": report.phase,
        "ari": finite(_ari(report.assignment, report.assignment, truth)),
        "ari_clients": sum(map(truth.__contains__, report.assignment)),
        "ari_of": len(truth),
        "ari_participants": finite(_ari(report.participants, report.assignment, truth)),
        **means(evaluations),
        **{f"tuned_{name}": value for name, value in means(tuned(evaluations)).items()},
        "metrics": metrics_of(evaluations),
        "evaluated": len(evaluations),
        "diverged": sum(not math.isfinite(loss) for loss in losses),
        "train_loss": finite(report.train_loss),
        **{name: finite((figures or {}).get(name)) for name in FIGURES},
        "cluster_sizes": [sizes[model] for model in range(max(sizes, default=-1) + 1)],
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
    }


def covers_all(line: RoundLine) -> bool:
    """Return whether the round's ARI is over all clients whose true cluster is known."""
    return bool(line["ari_clients"] == line["ari_of"])


def ari_words(line: Mapping[str, Any], prefix: str = "") -> str:
    """Return over how many clients an ARI is, of a round's line or (``final_``) of a summary; nothing if over all."""
    some, all_of = line[f"{prefix}ari_clients"], line[f"{prefix}ari_of"]
    return "" if some == all_of else f"{some} of {all_of} clients"


def privacy_words(line: Mapping[str, Any]) -> list[str]:
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
    ari: float | None = line["ari"]
    return ari if line["phase"] != FIRST_PHASE or covers_all(line) else None


def last(lines: Sequence[RoundLine], key: str) -> Any:
    """Return the last value under ``key`` that is not None, None where there is none."""
    return next((line[key] for line in reversed(lines) if line[key] is not None), None)


def last_evidence(lines: Sequence[RoundLine]) -> dict[str, Any] | None:
    """Return what the last round that looked for groups reported, None where none looked."""
    found = (line["details"].get(EVIDENCE) for line in reversed(lines))
    return next((evidence for evidence in found if evidence), None)


def round_seconds(line: RoundLine) -> float:
    """Return how long a round took: its total, or the sum of its parts where no total was taken."""
    seconds: Mapping[str, float] = line["seconds"]
    return float(seconds["total"]) if "total" in seconds else float(sum(seconds.values()))


def reaches(line: RoundLine, level: float) -> bool:
    """Return whether the clusters are found to at least this ARI in a round."""
    return (ari := found_ari(line)) is not None and ari >= level


def _round_of_stability(lines: Sequence[RoundLine]) -> int | None:
    found = next((line["round"] for line in lines if line["stable"]), None)
    return lines[-1]["details"].get(STABLE_FROM) if found is None and lines else found


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
) -> RunSummary:
    """Summarise a run from its lines, and from the evaluation at its end where there was one.

    Without `evaluations`, the last one of each client, the last evaluated round counts. `best_round` is the round
    whose models the run ends with, None the last one; `left_out` are nodes that could not take part.
    """
    ended = lines[:best_round]
    if evaluations:
        both = {"": means(list(evaluations.values())), "tuned_": means(tuned(evaluations.values()))}
        final: RoundLine = {f"{prefix}{name}": value for prefix, of in both.items() for name, value in of.items()}
        final["metrics"] = metrics_of(evaluations.values())
    else:
        final = next((line for line in reversed(ended) if line["evaluated"]), {})
    measured = next((line for line in reversed(ended) if line["ari"] is not None), {})
    return RunSummary(
        experiment=experiment,
        strategy=strategy,
        seed=seed,
        rounds=len(lines),
        **{f"final_{name}": final.get(name) for name in ("accuracy", "loss", "tuned_accuracy", "tuned_loss")},
        **{f"final_{name}": measured.get(name) for name in ("ari", "ari_clients", "ari_of")},
        ari_at_10=next((found_ari(line) for line in lines if line["round"] == ARI_ROUND), None),
        first_round_ari_90=next((line["round"] for line in lines if reaches(line, ARI_RECOVERED)), None),
        round_of_stability=_round_of_stability(lines),
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
        final_metrics=final.get("metrics", {}),
        final_num_clusters=ended[-1]["num_clusters"] if ended else None,
        **{f"final_{name}": last(ended, name) for name in FIGURES},
        best_round=best_round,
        stopped=stopped,
        final_validation=next((line.get("validation") for line in reversed(ended) if line["evaluated"]), None),
    )
