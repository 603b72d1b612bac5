"""Local-only: every client trains a model of its own and shares nothing."""

from typing import Any

import numpy as np

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.core import FloatArray


class Local(ClusteredStrategy):
    """One model per client, never averaged: what each client reaches alone.

    The models live on the server, so that clients keep no state. All start equal, from model 0: what differs between
    two clients' models at the end is their data.
    """

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self._initial: FloatArray | None = None

    def plan(self, context: RoundContext) -> Plan:
        """Let every participant train its own model; a client seen for the first time gets the next free one."""
        if self._initial is None:
            self._initial = context.models.bank[:1]
        for client in self.federation.online():
            self.assignment.setdefault(client.key, len(self.assignment))
        missing = len(self.assignment) - context.models.count
        if missing > 0:
            new = np.repeat(self._initial, missing, axis=0)
            context.models = context.models.replaced(np.concatenate([context.models.bank, new]))
        return context.train_assigned({client.key: self.assignment[client.key] for client in context.participants})
