"""Per-FedAvg: one model that is good after each client has adapted it by a gradient step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets import OneModel, Plan, Round, State, Steps, Strategy, setting
from florets.task.wire import kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.replies import read_update

TRAIN_ADAPTED = "florets.zoo.per_fedavg.client:train_adapted"
EVALUATE_ADAPTED = "florets.zoo.per_fedavg.client:evaluate_adapted"


@dataclass(frozen=True)
class PerFedAvgSettings(OneModel):
    """One model, trained to be good after one gradient step on a client's data."""

    alpha: float = setting(
        0.01, "size of the step by which a client adapts the model, in training; 0: FedAvg", least=0
    )
    test_alpha: float | None = setting(
        None,
        "size of the step before a test; null: alpha. With alpha=0 it is the reference: FedAvg and one step",
        least=0,
    )
    exact_hessian: bool = setting(
        False, "train by the exact gradient after adaptation, with a Hessian product in each step; false: first order"
    )

    adapts: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"updates"})
    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    def conflicts(self) -> list[str]:
        """Refuse Hessian products that count nothing."""
        if self.exact_hessian and self.alpha == 0:
            return [
                "strategy.exact_hessian=true: the Hessian is weighted by alpha, and strategy.alpha=0; drop one of "
                "them."
            ]
        return []


class PerFedAvg(Strategy[PerFedAvgSettings, State]):
    """Train one model for the clients' mean loss after one gradient step of size alpha on each one's own data.

    Personal is what a client makes of the model by that step, on all of its training data; it is tested and thrown
    away, so that nobody keeps anything, and one model goes down and one up, as in FedAvg. The run's saved model is
    the one before the step. A step of training takes gradients on two batches, on four times as many samples with
    `exact_hessian` as FedAvg's does (a Hessian product counts as two); a test takes a pass over the training data.

    Source: Fallah et al. 2020 (Per-FedAvg, arXiv 2002.07948), Alg. 1 with the exact Hessian product (the paper's
    HF approximates it), and its first-order variant; beta is the run's learning rate. Defaults: alpha 0.01, as in
    a public reimplementation, whose beta is 0.001. Deviation: the gradient goes to the run's optimiser, which is
    the paper's step with train=sgd alone; local steps are taken in shuffled epochs, and the server's mean is
    weighted by examples, so that alpha = 0 is FedAvg.
    """

    Settings = PerFedAvgSettings

    def round(self, r: Round) -> Steps:
        """Let every participant train model 0 for the loss after its adaptation."""
        settings = {
            **r.averaging.settings,
            kinds.ADAPTATION_STEP: self.settings.alpha,
            kinds.EXACT_HESSIAN: self.settings.exact_hessian,
        }
        requests = [r.request_custom(TRAIN_ADAPTED, client, r.models.one(0), settings) for client in r.participants]
        updates = yield Plan(requests, lambda _, content: read_update(content, r.models.layout, 0))
        return r.average(updates)

    def test(self, r: Round) -> Plan[TestResult]:
        """Let every tester that has taken part adapt the model, and test what comes of it."""
        alpha = self.settings.alpha if self.settings.test_alpha is None else self.settings.test_alpha
        models = dict.fromkeys(self.assignment, r.models.one(0))
        return r.test(models, {kinds.ADAPTATION_STEP: alpha}, handler=EVALUATE_ADAPTED)
