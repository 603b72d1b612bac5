"""The loss matrix of a finished run: the loss of each final model on each client's training data."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from florets.reports.console import counted, duration, size
from florets.strategies.base.context import Round
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.task.wire.replies import Losses

_MOST_ENTRIES = 2500
"""Entries (clients x models) that still make a legible picture."""
_MOST_BYTES = 4 * 2**30
"""Bytes of models sent, over all clients; Local-only's many models would soon pass any round's."""
_TRUSTED = 0.1
"""Fraction of the time limit after which an estimate holds: the first clients asked also load their data."""

Rows = Sequence[tuple[str, Losses]]


def loss_matrix(
    strategy: Strategy[Any, Any], models: Models, timeout: float, serial: bool, note: Callable[[str], None]
) -> tuple[list[str], FloatArray] | None:
    """Ask every online client for its loss on every final model.

    Parameters
    ----------
    timeout
        Seconds that it may take.
    serial
        The clients work one after the other in this process, where no deadline can interrupt them.
    note
        Shows a line of text.

    Returns
    -------
    tuple or None
        Keys of the clients that replied and their losses (M, K); None where there are too many of them, where it
        would take too long, or where nobody replied.
    """
    clients = strategy.federation.online()
    sent = len(clients) * sum(len(array.data) for array in models.record.values())
    extent = f"{counted(len(clients), 'client')} x {counted(models.count, 'model')}, {size(sent)} to send"
    if len(clients) * models.count > _MOST_ENTRIES or sent > _MOST_BYTES:
        note(f"no loss matrix: {extent}, are too many")
        return None
    note(f"loss matrix: {extent}")
    context = replace(strategy.context, timeout=min(timeout, strategy.context.timeout), quorum=0.0, grace=None)
    if serial:
        rows, left = _one_by_one(context, clients, models, timeout)
        if left:
            note(
                f"no loss matrix: it would take about {duration(left)}, longer than loss_matrix_timeout={timeout:g}; "
                "raise that, or leave it out with loss_matrix=false"
            )
            return None
    else:
        replies = context.ask_losses(clients, models, all_samples=True)
        rows = replies.ok
        if replies.missing:
            note(
                f"the loss matrix lacks {len(replies.missing)} of {counted(len(clients), 'client')}, which did not "
                f"answer within {context.timeout:g} s (loss_matrix_timeout)"
            )
    if not rows:
        return None
    return [key for key, _ in rows], np.stack([reply.losses for _, reply in rows])


def _one_by_one(
    context: Round, clients: Sequence[Client], models: Models, timeout: float
) -> tuple[Rows, float | None]:
    """Return the replies, or how many seconds all of them would take where that is more than `timeout`."""
    rows: list[tuple[str, Losses]] = []
    start, asked = time.monotonic(), 0
    while asked < len(clients):
        # Each exchange asks as many as all before it: few exchanges, and at most twice the time between two looks.
        some = clients[asked : max(1, 2 * asked)]
        rows += context.ask_losses(some, models, all_samples=True).ok
        asked += len(some)
        elapsed = time.monotonic() - start
        whole = elapsed / asked * len(clients)
        if asked < len(clients) and whole > timeout and elapsed > _TRUSTED * timeout:
            return [], whole
    return rows, None
