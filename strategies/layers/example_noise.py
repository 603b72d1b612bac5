"""Differential privacy of single records, with noise added by clients: the ledger of their releases."""

import dataclasses
from collections.abc import Mapping, Sequence

from florets.strategies.base.report import Client
from florets.strategies.core.accountant import level_of
from florets.strategies.coverage import Releases
from florets.strategies.layers.budget import GROUPING, Budget, multiplier
from florets.strategies.layers.noise import Ledger
from florets.strategies.settings import Privacy
from florets.task.wire import kinds, noise
from florets.task.wire.sampled_noise import Declared

_LOSSES = " (losses)"
"""Suffix of a client's key in the ledger for its vectors of losses, which are counted separately."""


class ExampleLedger(Ledger):
    """Keeps a run within the releases that clients choose their noise for (`Declared`); see `Ledger`.

    In the ledger a client can spend 1 on rounds and 1 on losses. Updates arrive noised, so groups of any size have
    models.
    """

    def __init__(self, privacy: Privacy, releases: Releases, visits: int, earlier: Budget | None = None) -> None:
        # The noise was chosen for this number, whatever num_rounds is now.
        visits = visits if earlier is None else round(1 / earlier.update)
        losses = releases.before + releases.each * visits
        epsilon, delta = float(privacy.epsilon or 0.0), 1e-5 if privacy.delta is None else privacy.delta
        budget = earlier or Budget(epsilon, delta, 1.0, 1 / visits, 1 / max(losses, 1), most=0.0)
        super().__init__(dataclasses.replace(privacy, min_group=1), releases, budget)
        own = multiplier(GROUPING * level_of(epsilon, delta) ** 2 / losses) if losses else 0.0
        self.declared = Declared(epsilon, delta, visits, losses, own)
        self._samples: dict[str, int] = {}

    @property
    def settings(self) -> dict[str, str | float]:
        own = {kinds.PRIVACY_CLIP: self.privacy.known_clip}
        declared = {kinds.DECLARED + name: value for name, value in vars(self.declared).items()}
        return {kinds.PRIVACY: kinds.RECORDS, **own, **declared}

    @property
    def planned(self) -> dict[str, str | float]:
        return {"kind": self.privacy.kind, "epsilon": self.declared.epsilon, "delta": self.declared.delta}

    def begin(self, participants: Sequence[Client], online: Sequence[Client]) -> None:
        self._samples.update({client.key: client.num_examples for client in online})
        super().begin(participants, online)

    def _crowd(self, online: Sequence[Client]) -> int:
        return max((client.num_examples for client in online), default=1)

    def can_pay(self, client: Client) -> bool:
        able = self.budget.affords(client.key + _LOSSES, self.releases.each * self.budget.grouping)
        return able and self.budget.affords(client.key, self.budget.update)

    def charge_grouping(self, keys: Sequence[str]) -> None:
        self.charge([key + _LOSSES for key in keys], self.budget.grouping)

    def charge_training(self, keys: Sequence[str], groups: Mapping[str, int]) -> None:
        if self.releases.each:
            self.charge_grouping(keys)
        self.charge(keys, self.budget.update)

    def raised_by(self, num_models: int) -> float:
        return noise.raised_by(num_models, self.declared.loss_noise)

    def _note(self, keys: Sequence[str]) -> None:
        spent, asked = self.budget.spent, self.declared
        for key in {key.removesuffix(_LOSSES) for key in keys}:
            rounds, losses = spent.get(key, 0.0) * asked.rounds, spent.get(key + _LOSSES, 0.0) * asked.losses
            drawing = self.training.drawing(self._samples.get(key, 1))
            most = asked.spent(*drawing, round(rounds), round(losses))
            self.budget.most = max(self.budget.most or 0.0, most)
