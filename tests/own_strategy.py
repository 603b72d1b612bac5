"""A strategy as another package would bring it, with a setting, a check and a state of its own."""

from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.base.report import State
from florets.strategies.base.round import Round, Steps
from florets.strategies.base.strategy import Strategy
from florets.strategies.settings import Experiment, ManyModels
from florets.task.keys import setting


@dataclass(frozen=True)
class EvenOddSettings(ManyModels):
    """Clients take the models in turn, and change sides every few rounds."""

    swap_every: int = setting(2, "rounds until the models change hands; 0: never", least=0, note="0 means never")

    finds_k: ClassVar[bool] = False

    def problems(self, run: Experiment) -> list[str]:
        if self.swap_every <= run.num_rounds:
            return []
        return [f"strategy.swap_every={self.swap_every}: there are num_rounds={run.num_rounds}; use at most that."]


@dataclass
class EvenOddState(State):
    """How often the models have changed hands."""

    swaps: int = 0


class EvenOdd(Strategy[EvenOddSettings, EvenOddState]):
    """Client i trains model i modulo K, moved on by one with every swap."""

    Settings = EvenOddSettings
    State = EvenOddState

    def round(self, r: Round) -> Steps:
        every = self.settings.swap_every
        if every and r.server_round % every == 0:
            self.state.swaps += 1
        updates = yield r.train({c.key: (c.number + self.state.swaps) % r.models.count for c in r.participants})
        return r.average(updates)


NUMBER = 1
