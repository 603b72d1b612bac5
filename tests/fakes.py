"""A ClientApp of one line of arithmetic, so that expected values can be written by hand.

A model is the number `theta` and a counter `steps`. Client i has a target: its loss is (theta - target)^2, training
moves theta half of the way, its gradient is 2 (theta - target), its own estimate and the mean of its data are the
target, and it holds `examples[i]` examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from florets.engines.local_grid import LocalGrid
from florets.strategies.base.report import RoundReport
from florets.strategies.cfl_gp.messages import TRAIN_PROBE
from florets.task.wire import bank, kinds
from florets.task.wire.flower import INSTALLED
from florets.zoo.k_fed import KMEANS

Fault = Callable[[RecordDict], RecordDict]


def lost(_: RecordDict) -> RecordDict:
    """Fail, as a client whose reply never comes."""
    raise RuntimeError("lost")


def play(strategy: Any, clients: "FakeClients", num_rounds: int, *start: float) -> list[RoundReport]:
    """Run a strategy from models with these thetas, and return what it reports of each round."""
    seen: list[RoundReport] = []
    strategy.start(
        clients.grid(), models(*start), num_rounds=num_rounds, on_round=lambda report, _: seen.append(report)
    )
    return seen


def asked_for(message: Message) -> str:
    """The message's type, or the handler that it names."""
    return str(message.content[kinds.CONFIG].get(kinds.HANDLER, message.metadata.message_type))


def message_to(content: RecordDict, node: int, kind: str) -> Message:
    """A message of a type, or to a handler."""
    if ":" not in kind:
        return Message(content, node, kind)
    content.setdefault(kinds.CONFIG, ConfigRecord())[kinds.HANDLER] = kind
    return Message(content, node, "query.custom")


def model(theta: float, steps: int = 0) -> dict[str, Array]:
    return {"theta": Array(np.array([theta], dtype=np.float32)), "steps": Array(np.array(steps, dtype=np.int64))}


def models(*thetas: float) -> ArrayRecord:
    return ArrayRecord(
        {f"{k}/{name}": array for k, theta in enumerate(thetas) for name, array in model(theta).items()}
    )


def thetas(record: ArrayRecord) -> list[float]:
    return [float(one["theta"].numpy()[0]) for one in bank.models(record)]


def steps(record: ArrayRecord) -> list[int]:
    return [int(one["steps"].numpy()) for one in bank.models(record)]


@dataclass
class FakeClients:
    """`faults[(kind, round, client)]` changes a reply; an exception raised in it is the client's failure."""

    targets: Sequence[float]
    examples: Sequence[int] | None = None
    keys: Sequence[str] | None = None
    faults: Mapping[tuple[str, int, int], Fault] = field(default_factory=dict)
    seen: list[tuple[str, int, int]] = field(default_factory=list)
    configs: list[ConfigRecord] = field(default_factory=list)
    received: list[float | None] = field(default_factory=list)
    """First theta of each message's models."""

    def grid(self) -> LocalGrid:
        app = ClientApp()
        app.query("hello")(self._handle)
        app.evaluate("losses")(self._handle)
        app.evaluate()(self._handle)
        app.train()(self._handle)
        app.train("select")(self._handle)
        app.train("estimate")(self._handle)
        app.query("custom")(self._handle)
        app.train("custom")(self._handle)
        return LocalGrid(app, len(self.targets))

    def asked(self, kind: str, server_round: int | None = None) -> list[int]:
        """Clients that were sent this kind (in this round), in the order of the messages."""
        return [c for k, r, c in self.seen if k == kind and server_round in (None, r)]

    def _handle(self, message: Message, context: Context) -> Message:
        client, kind = int(context.node_config["partition-id"]), asked_for(message)
        config = message.content.config_records[kinds.CONFIG]
        server_round = int(config.get(kinds.SERVER_ROUND, 0))  # type: ignore[arg-type]
        self.seen.append((kind, server_round, client))
        self.configs.append(config)
        sent = message.content.array_records.get(kinds.ARRAYS)
        self.received.append(None if sent is None else thetas(sent)[0])
        content = RecordDict(self._answer(kind, client, message.content, config))
        fault = self.faults.get((kind, server_round, client))
        return Message(fault(content) if fault else content, reply_to=message)

    def _answer(
        self, kind: str, client: int, content: RecordDict, config: ConfigRecord
    ) -> dict[str, ArrayRecord | MetricRecord | ConfigRecord]:
        n = self.examples[client] if self.examples else 10
        if kind == kinds.HELLO:
            return {
                kinds.METRICS: MetricRecord(
                    {kinds.NUM_EXAMPLES: n, kinds.CLUSTER: kinds.NO_CLUSTER, "num-partitions": len(self.targets)}
                ),
                kinds.CONFIG: ConfigRecord(
                    {
                        kinds.CLIENT_KEY: self.keys[client] if self.keys else str(client),
                        kinds.DEVICE: "cpu",
                        kinds.FINGERPRINT: "fake",
                        kinds.FLOWER: INSTALLED,
                    }
                ),
            }
        if kind == KMEANS:
            centre = Array(np.array([[self.targets[client]]], dtype=np.float32))
            return {kinds.ARRAYS: ArrayRecord({"centres": centre}), kinds.METRICS: MetricRecord({"sizes": [n]})}
        received = content.array_records[kinds.ARRAYS]
        losses = [(theta - self.targets[client]) ** 2 for theta in thetas(received)]
        if kind == kinds.LOSSES:
            return {kinds.METRICS: MetricRecord({"losses": losses, kinds.NUM_EXAMPLES: n, "kept": 0})}
        if kind == kinds.EVALUATE:
            return {kinds.METRICS: MetricRecord({kinds.EVAL_LOSS: losses[0], kinds.NUM_EXAMPLES: n})}
        chosen = int(np.argmin(losses))
        theta, count = thetas(received)[chosen], steps(received)[chosen]
        if kind == kinds.TRAIN_ESTIMATE:
            update = model(self.targets[client], count + 100 * client)
        elif config.get(kinds.REPLY) == kinds.REPLY_GRADIENT:
            update = model(2 * (theta - self.targets[client]), 0)
        else:
            update = model((theta + self.targets[client]) / 2, count + 1)
        metrics = MetricRecord({kinds.TRAIN_LOSS: losses[chosen], kinds.NUM_EXAMPLES: n})
        if number := int(config.get(kinds.STEP_LOSSES, 0)):  # type: ignore[arg-type]
            metrics[kinds.STEP_LOSSES] = [losses[chosen]] * number
        if kind == TRAIN_PROBE:
            change = 2 * (thetas(content.array_records[kinds.PROBE])[0] - self.targets[client])
            profile = np.array([change if config.get(kinds.REPLY) == kinds.REPLY_GRADIENT else -change / 4])
            record = ArrayRecord({"profile": Array(profile.astype(np.float32))})
            return {kinds.ARRAYS: ArrayRecord(update), kinds.METRICS: metrics, "profile": record}
        if kind == kinds.TRAIN_SELECT:
            metrics[kinds.CHOSEN_MODEL], metrics["losses"] = chosen, losses
        return {kinds.ARRAYS: ArrayRecord(update), kinds.METRICS: metrics}


def asker(settings: Mapping[str, Any], server_round: int = 2, nodes: int = 4) -> Callable[..., RecordDict]:
    """A function that sends one message to a client of the real ClientApp, by default the first."""
    from florets.client_app.app import app

    grid = LocalGrid(app, nodes)

    def ask(kind: str, own: Mapping[str, Any], node: int = 2, **records: ArrayRecord | None) -> RecordDict:
        config = ConfigRecord({**settings, kinds.SERVER_ROUND: server_round, **own})
        content = RecordDict(
            {kinds.CONFIG: config, **{name: one for name, one in records.items() if one is not None}}
        )
        (reply,) = grid.send_and_receive([message_to(content, node, kind)])
        assert not reply.has_error(), reply.error.reason
        return reply.content

    return ask
