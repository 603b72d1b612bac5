"""Ditto: a global model by FedAvg, and for each client a personal one that is held near it."""

from dataclasses import dataclass

from florets.strategies.base.state import State
from florets.strategies.ditto.personal import DittoClients, DittoKept
from florets.strategies.ditto.settings import DittoSettings
from florets.strategies.shared.one_group import OneGroup


@dataclass
class DittoState(DittoKept, State):
    """The clients' models; `assignment` numbers them from 1, in the order in which the clients were first seen."""


class Ditto(OneGroup[DittoSettings, DittoState]):
    """Train a global model by FedAvg, and beside it each participant's personal model, pulled towards the global one.

    Personal is a whole model for each client, and its test is the client's result; a client that has not taken part
    yet tests the global one. Personal models are kept by the server, 4 R bytes for each client seen, so that clients
    keep nothing and an interrupted run goes on. A round therefore sends two models down and two up; where clients
    keep their own, as in the paper, it sends what FedAvg does. Local work is twice that of FedAvg. At the end model 0
    is the global one, and the others are the clients'.

    Source: Li et al. 2021 (Ditto, arXiv 2012.04221), Alg. 1; lambda 1 as in the released scripts. Deviation:
    the personal model takes as many local steps as the global one, on the same batches, by the run's optimiser; the
    global average is weighted by examples.
    """

    Settings = DittoSettings
    State = DittoState
    Method = DittoClients
