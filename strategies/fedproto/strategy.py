"""FedProto: models of single clients, held near mean features of the classes that all clients share."""

from dataclasses import dataclass

from florets.strategies.base.state import State
from florets.strategies.fedproto.personal import FedProtoClients, FedProtoKept
from florets.strategies.fedproto.settings import FedProtoSettings
from florets.strategies.shared.one_group import OneGroup


@dataclass
class FedProtoState(FedProtoKept, State):
    """What is kept for each client; `assignment` numbers them in the order in which they were first seen."""


class FedProto(OneGroup[FedProtoSettings, FedProtoState]):
    """Train a model for each client alone, whose features are held near those of its class in all clients' models.

    Personal is the whole model; nothing of it is averaged. What clients share are prototypes, the mean input of the
    head for each of C classes, of D entries. Models are kept by the server, 4 R bytes for each client, and
    prototypes, 8 C D bytes: a round sends a model and up to C prototypes, both ways. Where clients keep their models,
    as in the paper, it sends the prototypes alone. Local work is Local-only's and a forward pass over the data.

    Raises
    ------
    ValueError
        By `check`, if the head is not linear, there is no such layer, or the number of classes is not known.

    Source: Tan et al. 2022 (FedProto, arXiv 2105.00243), Alg. 1 and Eq. 6 (means weighted by samples, of which the
    released code has none); lambda 1 is that of its MNIST runs. Deviation: the mean is over the last prototypes of
    all clients seen, whose models have not changed since; a test is of the client's own head over all classes; all
    clients' models have one architecture and start equal.
    """

    Settings = FedProtoSettings
    State = FedProtoState
    Method = FedProtoClients
