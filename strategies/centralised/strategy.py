"""Centralised training: one model on the data of all clients together; for simulations."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.base.report import State
from florets.strategies.base.round import Plan, Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import MODELS_ALONE, Experiment, OneModel
from florets.task.wire.replies import read_update

TRAIN_POOLED = "florets.strategies.centralised.client:train_pooled"


@dataclass(frozen=True)
class CentralisedSettings(OneModel):
    """One model trained on all clients' data together, which only a simulation has: a reference."""

    asks: ClassVar[frozenset[str]] = frozenset({"models"})
    follows = MODELS_ALONE

    def problems(self, run: Experiment) -> list[str]:
        """Refuse nodes with data of their own."""
        if run.task.partition != "own":
            return []
        return [
            "strategy=centralised: it trains on all clients' data together, and these nodes (task.partition=own) "
            "keep theirs; use strategy=fedavg."
        ]


class Centralised(Strategy[CentralisedSettings, State]):
    """What one model reaches where nothing is federated: a round trains it on the union of all clients' data.

    A simulated node has the whole data set, so one participant is sent the model, and takes every client's samples,
    those of clients that were not sampled too. A round is `train.local_epochs` epochs of all of them, with a new
    optimiser: as many gradients of samples as in a round of FedAvg with everybody, but in many more steps in a row.
    Each client tests the model. Messages are one model each way; the cost of sending the data is not counted.

    A node that is not simulated refuses, and the round fails.

    Source: CLoVE's released code, baseline "centralized".
    """

    Settings = CentralisedSettings

    def round(self, r: Round) -> Steps:
        """Let one participant train the model on everybody's data."""
        self.assignment.update({client.key: 0 for client in r.online})
        asked, layout = r.participants[0], r.models.layout
        request = r.request_custom(TRAIN_POOLED, asked, r.models.one(0), r.averaging.settings)
        updates = yield Plan([request], lambda _, content: read_update(content, layout, 0))
        return r.average(updates)
