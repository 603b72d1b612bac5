"""A hostile client in a group of four, under every strategy with `robust`."""

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.strategies import STRATEGIES
from florets.strategies.fedpac.strategy import FedPAC
from florets.strategies.shared.prototypes import global_prototypes
from florets.strategies.core.robust import RobustRule
from florets.task.wire import kinds
from tests.grid_runs import run_on
from tests.method_runs import SMALL

ALONE = ("centralised", "local")
"""Strategies in which clients share nothing."""
MORE = {
    "feddrift": ("strategy.period=1", "strategy.delta=5"),
    "fedgwc": ("strategy.fraction_train=0.5",),
    "flux": ("strategy.cluster_round=1",),
    "two_phase": ("strategy.moment_rounds=0",),
}
LARGEST = 2.0
"""Honest training makes no weight so large in these few rounds."""


class HostileGrid(LocalGrid):
    """A LocalGrid whose first client sends, from round 2 on, a thousandfold of the opposite of what it learned."""

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        sent = {message_id: self._waiting[message_id] for message_id in message_ids if message_id in self._waiting}
        return [self._spoilt(sent[reply.metadata.reply_to_message_id], reply) for reply in super().pull_messages(sent)]

    def _spoilt(self, message: Message, reply: Message) -> Message:
        config = message.content.config_records[kinds.CONFIG]
        client = int(self._contexts[message.metadata.dst_node_id].node_config["partition-id"])
        trains = message.metadata.message_type.startswith("train")
        if client or not trains or int(config.get(kinds.SERVER_ROUND, 0)) < 2:  # type: ignore[arg-type]
            return reply
        content = RecordDict(dict(reply.content))
        for name, record in reply.content.array_records.items():
            starts = {} if config.get(kinds.REPLY) == kinds.REPLY_GRADIENT else message.content.array_records.get(name, {})
            content[name] = ArrayRecord({key: _opposite(array, starts.get(key)) for key, array in record.items()})
        return Message(content, reply_to=message)


def _opposite(array: Array, start: Array | None) -> Array:
    values = array.numpy()
    begin = np.zeros_like(values) if start is None else start.numpy()
    return Array((begin - 1000 * (values - begin)).astype(values.dtype)) if values.dtype.kind == "f" else array


def largest(strategy: str, robust: str) -> float:
    """Largest weight of the models that the honest clients use after three rounds."""
    given = (f"strategy={strategy}", f"robust={robust}", "num_clients=8", "num_rounds=3", *MORE.get(strategy, ()))
    names = {text.partition("=")[0] for text in given}
    config = compose([*(text for text in SMALL if text.partition("=")[0] not in names), *given])
    built, reports = run_on(HostileGrid(app, 8), config, build_task(config))
    models = built.context.models
    honest = {key: model for key, model in reports[-1].assignment.items() if key != "0"}
    own = built.own_models(models) or {}
    rows = [own[key] if key in own else models.bank[model if model < models.count else 0] for key, model in honest.items()]
    return float(np.abs(np.stack(rows)).max())


@pytest.mark.parametrize("strategy", sorted({*STRATEGIES} - {*ALONE}))
def test_no_strategy_follows_a_hostile_member(strategy: str) -> None:
    assert largest(strategy, "median") < LARGEST
