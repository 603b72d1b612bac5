"""`begun`: the steps of a round; the first may assign clients as the run chooses (`first_round`)."""

from typing import Any

from florets.strategies.base.round import Round, Steps
from florets.strategies.starts.draw import draw_models
from florets.strategies.starts.restarts import Restarted, restarted
from florets.strategies.starts.updates import start_from_updates
from florets.task.randomness import Purpose


def begun(strategy: Any, r: Round) -> Steps:
    """Return a round's steps: the algorithm's own, unless the run chose another first assignment.

    With `first_round` clients train models drawn at random, or one model whose updates give the groups; "evaluate" is
    the algorithm's own round. A strategy with the keys of `Restarted` may have several attempts.
    """
    if r.server_round == 1 and strategy.first_round == "update":
        return start_from_updates(strategy, r)
    if isinstance(strategy.settings, Restarted) and restarted(strategy, r) and strategy.first_round == "random":
        return start_from_draw(strategy, r)
    steps: Steps = strategy.round(r)
    return steps


def start_from_draw(strategy: Any, r: Round) -> Steps:
    """Let every participant train a random model."""
    groups = draw_models(r.participants, r.models.count, r.random(Purpose.FIRST_ROUND))
    strategy.assignment.update(groups)
    strategy.begins(groups, are_found=False)
    updates = yield r.train(groups)
    return r.average(updates, drawn=True)
