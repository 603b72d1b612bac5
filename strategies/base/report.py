"""A strategy's state and its reports: clients, and one report per round."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from florets.task.tested import Evaluation, Work

Detail = float | str | list[float] | dict[str, Any]

FIRST_PHASE = "moment_descent"
"""The phase in which only some of those asked, the anchors, are given a model."""

# Names of details of a round's report.
STABLE_FROM = "stable_from"
"""Of the round that freezes the groups: the next round."""
PRIVACY = "privacy"
"""Epsilon so far, delta, the epsilon that is not passed, and the kind."""
ADVICE = "advice"
"""A warning to the user: what is wrong and what to do."""
EVIDENCE = "discovery"
"""Of a round that looked for groups: the verdict, with `text` and `advice` in plain words."""
QUARANTINE = "quarantine"
"""Keys of the clients in quarantine."""
SUMMED = "summed"
"""Number of clients that were asked for masked updates."""
SPECTRUM = "spectrum"
"""The largest singular values of the matrix that was clustered, falling."""


@dataclass(frozen=True)
class Client:
    """One client of the federation, as it introduced itself (`query.hello`).

    `key` stays the same when the node comes back under another node id. `number` is the client's integer in seeded
    draws: its partition id, else a hash of `key`. `cluster` is the true one, known for simulated clients only.
    """

    key: str
    node_id: int
    number: int
    num_examples: int
    cluster: int | None = None
    device: str = "cpu"


@dataclass(slots=True)
class ClientRound:
    """One client's part in a round's exchanges but for tests, of all its tries.

    `reply` is what came of the last message to it: "ok", "error", "missing" or "invalid", `rejected` for a reason.
    `halvings` are of the learning rate; `kept` is the part of its update that counted in a robust average (0 to 1).
    """

    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    reply: str = ""
    rejected: str = ""
    train_loss: float | None = None
    samples: int | None = None
    halvings: int | None = None
    kept: float | None = None


@dataclass(frozen=True)
class Compared:
    """The vectors (M, d) by which a round compared its clients; d at most `MOST_NUMBERS`."""

    kind: str
    clients: tuple[str, ...]
    vectors: npt.NDArray[np.float32]


MOST_NUMBERS = 64
"""Most numbers of a client's vector that are kept in a round; longer vectors are projected."""


@dataclass(kw_only=True)
class Costs:
    """What a round cost, in all its `tries`; tests count in no bytes or work.

    `seconds` are by part; `replies` counts ok, error, missing and invalid; `rejected` says why values of a client are
    too large.
    """

    bytes_down: int = 0
    bytes_up: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    replies: Counter[str] = field(default_factory=lambda: Counter(ok=0, error=0, missing=0, invalid=0))
    tries: int = 1
    rejected: dict[str, str] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    clients: dict[str, ClientRound] = field(default_factory=lambda: defaultdict(ClientRound))
    compared: Compared | None = None


@dataclass(kw_only=True)
class RoundReport(Costs):
    """Everything that is recorded of one round.

    `phase` is "clustering", "stable" (the clustering is frozen), "training" (the strategy does not cluster),
    "discovery", or one of mixed regression's, "moment_descent" and "refine". `details` are values for JSON.
    """

    server_round: int
    phase: str
    participants: tuple[str, ...]
    assignment: Mapping[str, int]
    num_clusters: int
    stable: bool
    train_loss: float | None
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    details: Mapping[str, Detail] = field(default_factory=dict)


_MOST_NAMED = 10


Vectors = Sequence[npt.NDArray[np.floating]] | npt.NDArray[np.floating]
"""Vectors of one length, or the rows of a matrix."""


def sketched(vectors: Vectors, width: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Return M vectors of at most `width` numbers, (M, min(d, width)): of long ones their count sketches.

    Inner products are kept on average, with a relative spread of about 1 / sqrt(width).

    Source: Charikar, Chen and Farach-Colton 2002 (count sketch).
    """
    length = len(vectors[0]) if len(vectors) else 0
    if length <= width:
        return _in_range(np.array(vectors, dtype=np.float64).reshape(len(vectors), length)).astype(np.float32)
    places = rng.integers(width, size=length)
    signs = rng.integers(2, size=length) * 2.0 - 1.0
    # Row by row: all of them together may be as large as every client's model.
    rows = [np.bincount(places, weights=_in_range(vector) * signs, minlength=width) for vector in vectors]
    return _in_range(np.stack(rows)).astype(np.float32)


def _in_range(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    most = float(np.finfo(np.float32).max)
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=most, neginf=-most)
    return np.clip(finite, -most, most)


def named(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Return names in one line; of many, the first ones and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@dataclass
class State:
    """All that a strategy remembers: checkpoints save it whole, and a repeated round begins with a copy.

    An algorithm adds what it remembers in a subclass. Fields may be plain values, lists, tuples, sets, dicts, arrays,
    `Models`, `ArrayRecord` and dataclasses of these, in any nesting (`base.encoding`).

    Attributes
    ----------
    assignment
        Model index of every client that has one, by client key.
    phase
        Phase of the current round, for the report: "clustering", "stable", "training" or the algorithm's own.
    evaluations
        Results of the last test evaluation, by client key; empty after a round without one.
    train_loss
        Mean training loss of the last round, weighted by examples.
    kept
        What a personal method keeps for each client within the groups; None where the run has none.
    details
        What only this algorithm reports of the current round; empty when it begins.
    layers
        What the layers around the algorithm remember, by name.
    """

    assignment: dict[str, int] = field(default_factory=dict)
    phase: str = "training"
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    train_loss: float | None = None
    kept: Any = None
    details: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Any] = field(default_factory=dict)
