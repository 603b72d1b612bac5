"""Short runs of one strategy in process, on two groups of three clients that hold different digits."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, Error, Message

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_task
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport
from florets.strategies.base.strategy import Strategy
from florets.strategies.core.metrics import adjusted_rand_index
from florets.task.wire import kinds
from tests.fakes import asked_for
from tests.grid_runs import run_on

SMALL = (
    "experiment=digits_label_skew", "num_clients=6", "task.num_clusters=2", "k=2", "task.model_options.hidden=[8]",
    "num_rounds=2", "eval_every=100",
)  # fmt: skip

Lost = Collection[tuple[str, int, int]]


@dataclass(frozen=True)
class Played:
    """What a run came to; `final` are the bytes of its models, `models` the last round's bank."""

    strategy: Strategy[Any, Any]
    reports: list[RoundReport]
    models: Models
    final: list[bytes]

    @property
    def ari(self) -> float | None:
        """Agreement of the last assignment with the true clusters."""
        found = self.reports[-1].assignment
        truth = {client.key: client.cluster or 0 for client in self.strategy.federation.clients.values()}
        return adjusted_rand_index([truth[key] for key in sorted(found)], [found[key] for key in sorted(found)])


class LosingGrid(LocalGrid):
    """A grid that loses some replies, and turns the first values of others into 1e30: (kind, round, client)."""

    lost: Lost = ()
    huge: Lost = ()

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        sent = {message_id: self._waiting[message_id] for message_id in message_ids if message_id in self._waiting}
        replies = []
        for reply in super().pull_messages(sent):
            message = sent[reply.metadata.reply_to_message_id]
            client = int(self._contexts[message.metadata.dst_node_id].node_config["partition-id"])
            server_round = int(message.content.config_records[kinds.CONFIG].get(kinds.SERVER_ROUND, 0))  # type: ignore[arg-type]
            place = (asked_for(message), server_round, client)
            if place in self.lost:
                reply = Message(Error(code=2, reason="lost"), reply_to=message)
            if place in self.huge:
                record = reply.content.array_records[kinds.ARRAYS]
                name = next(iter(record))
                record[name] = Array(np.full_like(record[name].numpy(), 1e30))
            replies.append(reply)
        return replies


def play(*overrides: str, lost: Lost = (), huge: Lost = ()) -> Played:
    """Run `SMALL`, or another experiment, with these overrides; some replies may be lost, or hold huge values."""
    names = {text.partition("=")[0] for text in overrides}
    small = () if "experiment" in names else SMALL
    config = compose([*(text for text in small if text.partition("=")[0] not in names), *overrides])
    task = build_task(config)
    grid = LosingGrid(app, config.num_clients)
    grid.lost, grid.huge = lost, huge
    strategy, reports = run_on(grid, config, task)
    models = strategy.context.models
    record = strategy.final_models(models).record
    return Played(strategy, reports, models, [array.numpy().tobytes() for array in record.values()])
