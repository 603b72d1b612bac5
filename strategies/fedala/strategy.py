"""FedALA: FedAvg whose clients begin with their own mixture of the global model and their upper layers."""

from dataclasses import dataclass

from florets.strategies.base.state import State
from florets.strategies.fedala.personal import FedALAClients, FedALAKept
from florets.strategies.fedala.settings import FedALASettings
from florets.strategies.shared.one_group import OneGroup


@dataclass
class FedALAState(FedALAKept, State):
    """What is kept for each client; `assignment` numbers them from 1, in the order in which they were first seen."""


class FedALA(OneGroup[FedALASettings, FedALAState]):
    """Average one model, and let each client mix its upper layers with its own last ones before it trains or tests.

    Personal are the upper layers (by default the last one) of the model that a client trained last, U entries, and as
    many weights. The mixture is own + (global - own) * weight. Weights start at 1; in a client's second round they
    are learned until they converge, later by one pass over part of its data. All of it is kept by the server, 8 U
    bytes for each client: a round sends the model and 2 U entries down, the model and U up (the paper's clients keep
    theirs, and send what FedAvg sends). A test is of the mixture with the newest global model, after a further pass,
    as in the paper. It costs a client that pass, `sample_fraction` of its samples, in each round and each test, and
    up to `most_passes` until its weights have converged. At the end model 0 is the global one, and the others are the
    clients' mixtures by the weights that they learned last.

    Raises
    ------
    ValueError
        By `check`, if a prefix in `layers` fits no layer.

    Source: Zhang et al. 2023 (FedALA, arXiv 2212.01197), Alg. 1; eta 1, 80 % of the data and the last layer are the
    released code's defaults, the threshold 0.01 is the paper's. Deviation: who is not sampled learns no weights in
    that round; passes are capped; see `florets.task.training.local_aggregation`.
    """

    Settings = FedALASettings
    State = FedALAState
    Method = FedALAClients
