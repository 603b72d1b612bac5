"""FedRC: FedEM in which a sample counts for a model the more, the rarer its class is in that model's part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flwr.app import RecordDict

from florets import Round, Update
from florets.strategies.base.groups import Frozen
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray
from florets.strategies.core.robust import bounded, most_hostile
from florets.task.wire import codec, kinds
from florets.zoo.fedem import ClassMixtureUpdate, FedEM, FedEMSettings, FedEMState, MixtureUpdate
from florets.zoo.shared.of_classes import OfClasses

FLOOR = 1e-8
"""Least sum of a class in a model's part, in samples."""


@dataclass(frozen=True)
class FedRCSettings(OfClasses, FedEMSettings):
    """FedEM whose models cannot divide the classes among themselves: they separate concepts instead.

    `averaged_by` is FedEM's, by the same measurement: pairs of labels 78.4 +- 8.0 (by examples 62.3 +- 4.5), turned
    by quarters 85.6 +- 1.8 (75.1 +- 1.4).
    """

    purpose: ClassVar[str] = "FedRC weighs samples by their classes"


@dataclass
class FedRCState(FedEMState):
    """What FedRC remembers."""

    # Responsibilities of each client that has taken part, summed by class, (K, C).
    class_sums: dict[str, FloatArray] = field(default_factory=dict)


class FedRC(FedEM):
    """Expectation maximisation of the robust clustering objective, which parts concepts and nothing else.

    As FedEM, but a model's responsibility for a sample is proportional to pi_k exp(-loss_k) / P_k(y), with P_k(y) the
    share of class y in all that model k is responsible for. A model that takes the samples of few classes gains
    nothing, as they are common in its part: models do not specialise on labels, nor on inputs that go with them, and
    only clients that mean different things by a class are told apart.

    Beside its models and shares each client sends K C numbers, the sums of its responsibilities by class; the latest
    of every client seen are kept, and their sum is P_k(y) in the next round. In round 1 all classes count alike.
    `train_loss` is that of the mixture, as FedEM's. With k=1 it is FedAvg.

    Source: Guo, Tang and Lin 2024 (FedRC, arXiv 2301.12379), as in the released code: averages by examples
    (`averaged_by=examples`), P_k(y) from the last round's responsibilities with a floor of 1e-8, probabilities mixed
    in the shares at the test.
    Deviation: the run's optimiser makes the steps, see FedEM; the paper's is SGD.
    Deviation: the number of models is told; FedRC-Adam and the removal of small models are left out.
    """

    Settings = FedRCSettings
    State = FedRCState
    state: FedRCState

    def check(self, models: Models) -> None:
        """Refuse a task whose number of classes is not known."""
        super().check(models)
        if self.num_outputs < 1 or self.loss != "cross_entropy":
            raise ValueError(
                f"num_outputs={self.num_outputs} loss={self.loss!r}: FedRC needs a task of classes; give their "
                'number as num_outputs, and loss="cross_entropy"'
            )

    def class_shares(self, count: int) -> FloatArray:
        """Return P_k(y) of `count` models, (K, C), from the responsibilities of all clients seen."""
        sums, kept, rule = np.zeros((count, self.num_outputs)), self.state.class_sums, self.averaging.robust
        examples = np.array([kept[key].sum() for key in sorted(kept)])
        # What a client claims weighs no more here than in its models' averages.
        counted = bounded(examples, most_hostile(len(kept), rule.hostile)) if rule and kept else examples
        for key, factor in zip(sorted(kept), counted / examples, strict=True):
            sums += factor * kept[key]
        sums = np.maximum(sums, FLOOR)
        shares: FloatArray = sums / sums.sum(axis=1, keepdims=True)
        return shares

    def frozen_clusters(self) -> Frozen | None:
        """Return the models' class shares, with which new clients find theirs."""
        return Frozen("classes", self.class_shares(self.context.models.count)) if self.state.class_sums else None

    def _of_mixture(self, shares: FloatArray) -> Mapping[str, list[float]]:
        shares_of_classes = self.class_shares(len(shares)).ravel().tolist()
        return {**super()._of_mixture(shares), kinds.CLASS_SHARES: shares_of_classes}

    def _read(self, content: RecordDict, models: Models) -> MixtureUpdate:
        return codec.read(ClassMixtureUpdate, content, layout=models.layout, K=models.count, C=self.num_outputs)

    def _combine(self, updates: Sequence[tuple[str, Update]], r: Round) -> FloatArray:
        for key, update in updates:
            if isinstance(update, ClassMixtureUpdate):
                self.state.class_sums[key] = update.class_sums
        return super()._combine(updates, r)
