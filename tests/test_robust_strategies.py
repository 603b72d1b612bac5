"""A hostile client in a group of four, under every strategy with `robust`."""

from collections.abc import Sequence

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from benchmarks.measuring import Heard, ListeningGrid
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_task
from florets.strategies import STRATEGIES
from florets.task.wire import kinds
from tests.grid_runs import run_on
from tests.method_runs import SMALL

ALONE = ("centralised", "local")
"""Strategies in which clients share nothing."""
MORE = {
    "clove": ("first_round=update",),
    "feddrift": ("strategy.period=1", "strategy.delta=5"),
    "fedgwc": ("strategy.fraction_train=0.5",),
    "ifca": ("first_round=update",),
    "two_phase": ("strategy.moment_rounds=0",),
}
EIGHT = ("num_clients=8", *(text for text in SMALL if not text.startswith(("num_clients=", "num_rounds="))))
HONEST = 1.0
"""No weight is as large after a few honest rounds."""


class HostileGrid(ListeningGrid):
    """A grid whose first client sends, from round 2 on, a thousandfold of the opposite of what it learned."""

    def hear(self, heard: Sequence[Heard]) -> list[Message]:
        return [self._spoilt(*one) for one in heard]

    def _spoilt(self, client: int, message: Message, reply: Message) -> Message:
        config = message.content.config_records[kinds.CONFIG]
        trains = message.metadata.message_type.startswith("train")
        if client or not trains or int(config.get(kinds.SERVER_ROUND, 0)) < 2:  # type: ignore[arg-type]
            return reply
        content = RecordDict(dict(reply.content))
        is_gradient = config.get(kinds.REPLY) == kinds.REPLY_GRADIENT
        for name in {kinds.ARRAYS, kinds.GLOBAL} & content.array_records.keys():
            starts = {} if is_gradient else message.content.array_records.get(name, {})
            record = content.array_records[name].items()
            content[name] = ArrayRecord({key: _opposite(array, starts.get(key)) for key, array in record})
        return Message(content, reply_to=message)


def _opposite(array: Array, start: Array | None) -> Array:
    values = array.numpy()
    begin = np.zeros_like(values) if start is None else start.numpy()
    return Array((begin - 1000 * (values - begin)).astype(values.dtype))


def largest(strategy: str, robust: str, seed: int = 2) -> float:
    """Largest weight of the models that the honest clients use after three rounds."""
    given = (f"strategy={strategy}", f"robust={robust}", "num_rounds=3", f"seed={seed}", *MORE.get(strategy, ()))
    config = compose([*EIGHT, *given])
    built, reports = run_on(HostileGrid(8), config, build_task(config))
    models = built.context.models
    honest = {key: model for key, model in reports[-1].assignment.items() if key != "0"}
    own = built.own_models(models) or {}
    # Some strategies number clients and not models.
    numbers = [model if model < models.count else 0 for model in honest.values()]
    return float(np.abs([*models.bank[numbers], *(own[key] for key in honest.keys() & own.keys())]).max())


# The rule is one function of all of them: those that average in a way of their own are in the default suite.
QUICK = {"clove", "ifca", "cfl_gp", "two_phase", "discovery", "ditto", "fedem", "fedproto", "feddrift"}


@pytest.mark.parametrize(
    "strategy",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted({*STRATEGIES} - {*ALONE})
    ],
)
def test_no_strategy_follows_a_hostile_member(strategy: str) -> None:
    assert largest(strategy, "median") < HONEST


def test_a_hostile_client_alone_in_a_drawn_group_takes_no_model_far() -> None:
    assert largest("cfl_gp", "median", seed=0) < HONEST


def test_without_a_rule_a_hostile_member_takes_the_model_along() -> None:
    assert largest("fedavg", "none") > 2 * HONEST


def test_what_a_rule_does_not_reach_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cover .*moments of clients' data, which strategy=two_phase sends; use a"):
        compose([*SMALL, "strategy=two_phase", "robust=median"])
