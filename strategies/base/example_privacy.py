"""Differential privacy of single records: what each client's have been released for, where clients add the noise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from florets.strategies.base.privacy import Budget, Guard, multiplier
from florets.strategies.base.report import Client
from florets.strategies.core.accountant import level_of
from florets.strategies.settings import Privacy, Releases
from florets.task.training.settings import Training
from florets.task.wire import kinds, noise
from florets.task.wire.sampled_noise import Declared

_LOSSES = " (losses)"
"""After a client's key in the ledger: of its vectors of losses, which are counted by themselves."""


class ExampleGuard(Guard):
    """Keeps a run within what clients are told (`Declared`): so many rounds, and vectors of losses, of each.

    In the ledger a client can spend 1 of either. What the server does with updates needs no noise, and groups of any
    size have models of their own.

    Attributes
    ----------
    training
        Local training as clients are asked for it.
    """

    def __init__(self, privacy: Privacy, releases: Releases, visits: int, earlier: Budget | None = None) -> None:
        if earlier is not None:
            # Clients' noise was made for so many, whatever num_rounds is now.
            visits = round(1 / earlier.update)
        losses = releases.before + releases.each * visits
        epsilon, delta = float(privacy.epsilon or 0.0), privacy.records_delta
        budget = earlier or Budget(epsilon, delta, 1.0, 1 / visits, 1 / losses if losses else 0.0, most=0.0)
        super().__init__(replace(privacy, min_group=privacy.least_group), releases, budget)
        level = privacy.grouping * level_of(epsilon, delta) ** 2 / losses if losses else 0.0
        self.declared = Declared(epsilon, delta, visits, losses, multiplier(level) if losses else 0.0)
        self.training = Training()
        self._samples: dict[str, int] = {}

    @property
    def settings(self) -> dict[str, str | float]:
        """See `Guard.settings`."""
        return {
            kinds.PRIVACY: kinds.RECORDS,
            kinds.PRIVACY_CLIP: self.privacy.known_clip,
            kinds.PRIVACY_LOSS_CLIP: self.privacy.loss_clip,
            kinds.PRIVACY_LOSS_NOISE: self.declared.loss_noise,
            kinds.PRIVACY_EPSILON: self.declared.epsilon,
            kinds.PRIVACY_DELTA: self.declared.delta,
            kinds.PRIVACY_ROUNDS: self.declared.rounds,
            kinds.PRIVACY_LOSSES: self.declared.losses,
        }

    def begin(self, participants: Sequence[Client], online: Sequence[Client]) -> None:
        """See `Guard.begin`; how many records each has is public."""
        self._samples.update({client.key: client.num_examples for client in online})
        super().begin(participants, online)

    def can_pay(self, client: Client) -> bool:
        """See `Guard.can_pay`."""
        losses = self.budget.affords(client.key + _LOSSES, self.releases.each * self.budget.grouping)
        return losses and self.budget.affords(client.key, self.budget.update)

    def charge_grouping(self, keys: Sequence[str]) -> None:
        """See `Guard.charge_grouping`."""
        self.charge([key + _LOSSES for key in keys], self.budget.grouping)

    def charge_training(self, keys: Sequence[str], groups: Mapping[str, int]) -> None:
        """See `Guard.charge_training`."""
        if self.releases.each:
            self.charge_grouping(keys)
        self.charge(keys, self.budget.update)

    def raised_by(self, num_models: int) -> float:
        """See `Guard.raised_by`."""
        return noise.raised_by(num_models, self.privacy.loss_clip, self.declared.loss_noise)

    @property
    def planned(self) -> dict[str, str | float]:
        """See `Guard.planned`; noise of a round is each client's own."""
        return {"kind": self.privacy.kind, "epsilon": self.declared.epsilon, "delta": self.declared.delta}

    def _note(self, keys: Sequence[str]) -> None:
        """Bring the largest epsilon of these clients into the budget."""
        for key in {key.removesuffix(_LOSSES) for key in keys}:
            rounds, losses = (
                round(self.budget.spent.get(name, 0.0) * most)
                for name, most in ((key, self.declared.rounds), (key + _LOSSES, self.declared.losses))
            )
            spent = self.declared.spent(*self.training.drawing(self._samples.get(key, 1)), rounds, losses)
            self.budget.most = max(self.budget.most or 0.0, spent)
