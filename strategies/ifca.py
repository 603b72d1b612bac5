"""IFCA: each client picks the model with the lowest loss on its data and trains it, in one exchange."""

from typing import Any

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.shared.first_round import FirstRound, draw_models
from florets.task.randomness import Purpose


class Ifca(ClusteredStrategy):
    """Iterative federated clustering: the client's choice is the clustering.

    Parameters
    ----------
    first_round
        "evaluate": clients choose from the first round on, as in the paper. "random": in round 1 each client trains
        a random model, as CLoVE's experiments do.
    common
        Parameters of `ClusteredStrategy`; K is the number of models in the initial arrays.

    Source: Ghosh et al. 2020, Alg. 1 (l. 7 and 8: the choice; option I gradients, option II models).
    """

    def __init__(self, *, first_round: FirstRound = "random", **common: Any) -> None:
        super().__init__(**common)
        self.first_round = first_round

    @property
    def phase(self) -> str:
        """IFCA never stops clustering."""
        return "clustering"

    def plan(self, context: RoundContext) -> Plan:
        """Send all models and let each participant choose; or the random first round."""
        if context.server_round == 1 and self.first_round == "random":
            rng = context.random(Purpose.FIRST_ROUND)
            return context.train_assigned(draw_models(context.participants, context.models.count, rng))
        return context.train_selected()
