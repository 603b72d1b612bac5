"""Clients' rows as a clustering sees them where some may be hostile: drawn in, set aside, or known as copies."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.round import Round
from florets.strategies.base.report import State
from florets.strategies.core import BoolArray, FloatArray
from florets.strategies.core.cluster import finite_losses
from florets.strategies.core.outliers import LEAST_CLIENTS, lower_median
from florets.strategies.core.quarantine import Quarantine
from florets.strategies.core.robust import LONGEST, clip_factors, most_expelled
from florets.strategies.core.set_aside import copied_rows, drawn_in, far_rows, has_groups, lone_rows
from florets.task.randomness import Purpose


def bounded_rows(
    state: State,
    context: Round,
    keys: Sequence[str],
    rows: FloatArray,
    num_clusters: int,
    strangers: BoolArray | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Return clients' rows (M, D) as they are to be clustered, and which of them are set aside and placed afterwards.

    Without a robust rule the rows as they are, and none. Else those of clients in quarantine are set aside, as are
    far ones (`core.set_aside`) in a client's first `PROBATION` rounds, in which its updates do not count. After them,
    where the others have all groups without the far ones, these are in quarantine, and otherwise they are a group of
    another scale: they are drawn in and clustered. `strangers` (M,) are set aside as well.
    """
    rule, none = context.averaging.robust, np.zeros(len(rows), dtype=np.bool_)
    strangers = none if strangers is None else strangers
    if rule is None:
        return rows, none
    # As many as a group has may be an honest one.
    most = min(most_expelled(len(rows), rule.hostile), max(len(rows) // max(num_clusters, 1) - 1, 0))
    rows = finite_losses(rows)
    quarantine = state.quarantine = state.quarantine or Quarantine()
    far = far_rows(rows, most)
    if num_clusters < 2 or (~far).sum() <= num_clusters + 1:
        # Nothing can be said of so few, nor of one group.
        return rows, none
    now = context.server_round
    judged = {key for key, is_far in zip(keys, far.tolist(), strict=True) if quarantine.is_judged(key, is_far, now)}
    away = strangers | np.array([key in {*quarantine.clients, *quarantine.probation, *judged} for key in keys])
    if judged and has_groups(rows[~away], num_clusters, context.random(Purpose.CLUSTERING)):
        quarantine.enter(sorted(judged))
    away = strangers | np.array([key in quarantine.clients or key in quarantine.probation for key in keys])
    return drawn_in(rows, most), away if len(rows) - away.sum() >= max(num_clusters, LEAST_CLIENTS) else none


def bounded_moves(context: Round, bank: FloatArray) -> FloatArray:
    """Return averages (K, R) of groups that are drawn, none moved further than `LONGEST` times the median one.

    One of them may by chance be mostly hostile, which no rule within a group sees. Without a robust rule the averages
    as they are.
    """
    if context.averaging.robust is None:
        return bank
    trained = context.models.layout.trained
    changes = (bank - context.models.bank)[:, trained]
    lengths = np.linalg.norm(changes, axis=1)
    if not lengths.any():
        return bank
    factors = clip_factors(lengths, LONGEST * lower_median(lengths[lengths > 0]))
    bank[:, trained] -= changes * (1.0 - factors[:, np.newaxis])
    return bank


def quarantined_copies(state: State, context: Round, rows: Mapping[str, NDArray[np.floating]]) -> set[str]:
    """Take clients whose rows on folds are copies into quarantine, and return them; without a robust rule nobody.

    Whoever was copied is among them, and counts again once its updates agree with its group's.
    """
    keys = sorted(rows)
    if context.averaging.robust is None or len(keys) < LEAST_CLIENTS:
        return set()
    mask = copied_rows(np.stack([rows[key] for key in keys]).astype(np.float64))
    copies = {key for key, is_copy in zip(keys, mask.tolist(), strict=True) if is_copy}
    if copies:
        quarantine = state.quarantine = state.quarantine or Quarantine()
        quarantine.enter(sorted(copies - quarantine.clients.keys()))
    return copies


def without_strangers(
    state: State, context: Round, keys: Sequence[str], rows_of: Callable[[BoolArray], FloatArray], num_clusters: int
) -> tuple[FloatArray, BoolArray]:
    """Return clients' rows (M, D), and which clients are strangers to all groups that the others form.

    `rows_of` makes the rows of what those that are no strangers (M,) have in common. Strangers (`lone_rows`) are in
    quarantine at once: they would fill one group, or take a centroid. One that has left quarantine counts.
    """
    rule, away = context.averaging.robust, np.zeros(len(keys), dtype=np.bool_)
    rows = rows_of(~away)
    if rule is None:
        return rows, away
    quarantine = state.quarantine = state.quarantine or Quarantine()
    found = np.array([key in quarantine.clients for key in keys])
    most = most_expelled(len(keys), rule.hostile)
    while True:
        away |= found
        rows = rows_of(~away) if found.any() else rows
        found = np.zeros(len(keys), dtype=np.bool_)
        found[~away] = lone_rows(
            rows[~away], num_clusters, most - int(away.sum()), context.random(Purpose.CLUSTERING)
        )
        if not found.any():
            break
    strangers = {key for key, is_away in zip(keys, away.tolist(), strict=True) if is_away}
    quarantine.enter(sorted(strangers - quarantine.clients.keys() - quarantine.cleared))
    return rows, away
