"""Local-only: every client trains a model of its own and shares nothing."""

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from strategies.base import ClusteredStrategy, Plan


class Local(ClusteredStrategy):
    """One model per client, never averaged: what each client reaches alone.

    The models live on the server, so that clients keep no state. All start equal, from model 0: what differs between
    two clients' models at the end is their data.
    """

    def plan(self, server_round: int, config: ConfigRecord, grid: Grid) -> Plan:
        """Let every participant train its own model; a client seen for the first time gets the next free one."""
        first = self.models.bank[:1] if not self.assignment else None
        if first is not None:
            self._initial = first
        for client in self.federation.online():
            self.assignment.setdefault(client.key, len(self.assignment))
        missing = len(self.assignment) - self.models.count
        if missing > 0:
            self.models = self.models.replaced(
                np.concatenate([self.models.bank, np.repeat(self._initial, missing, axis=0)])
            )
        own = {client.key: self.assignment[client.key] for client in self.participants}
        return self.train_assigned(server_round, own, config)
