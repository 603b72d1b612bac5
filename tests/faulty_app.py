"""Clients that go wrong: the real ClientApp, of which some clients in some rounds fail in a chosen way.

`FaultyGrid` is a LocalGrid: in every round floor(share * num_nodes) clients, drawn by (seed, round), are faulty in
all their messages. The introduction (round 0) is honest. Hangs and deaths need processes, and are tested elsewhere.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.engines.local_grid import LocalGrid
from florets.task.wire import kinds

Change = Callable[[RecordDict], RecordDict]
LOSSES = ("losses", kinds.STEP_LOSSES, kinds.TRAIN_LOSS, kinds.EVAL_LOSS)


def _numbers(value: float, wanted: Callable[[str], bool]) -> Change:
    """Replace the numbers and lists whose names are wanted."""

    def change(content: RecordDict) -> RecordDict:
        for metrics in content.metric_records.values():
            for key in filter(wanted, list(metrics)):
                old = metrics[key]
                metrics[key] = [value] * len(old) if isinstance(old, list) else value
        return content

    return change


def _losses(value: float) -> Change:
    return _numbers(value, lambda key: key in LOSSES)


def _others(value: float) -> Change:
    """Replace all numbers that are neither losses nor counts of examples: shares, sums by class, spreads."""
    return _numbers(value, lambda key: key not in {*LOSSES, kinds.NUM_EXAMPLES, kinds.EVAL_ACCURACY})


def _beside(value: float) -> Change:
    """Replace the values of the arrays beside the model: prototypes, statistics, weights, a second model."""

    def change(content: RecordDict) -> RecordDict:
        for name, record in list(content.array_records.items()):
            if name != kinds.ARRAYS:
                content[name] = ArrayRecord({k: Array(np.full_like(a.numpy(), value)) for k, a in record.items()})
        return content

    return change


def _examples(number: int) -> Change:
    return _numbers(number, lambda key: key == kinds.NUM_EXAMPLES)


def _values(value: float) -> Change:
    """Replace the values of the first array of every record."""

    def change(content: RecordDict) -> RecordDict:
        for name, record in list(content.array_records.items()):
            first = next(iter(record))
            content[name] = ArrayRecord({**record, first: Array(np.full_like(record[first].numpy(), value))})
        return content

    return change


def _exception(content: RecordDict) -> RecordDict:
    raise RuntimeError("the sensor is on fire")


FAULTS: dict[str, Change] = {
    "exception": _exception,
    "empty reply": lambda _: RecordDict(),
    "NaN weights": _values(float("nan")),
    "infinite weights": _values(float("inf")),
    "huge weights (1e30)": _values(1e30),
    "huge weights (1e6)": _values(1e6),
    "NaN losses": _losses(float("nan")),
    "infinite losses": _losses(float("inf")),
    "negative losses": _losses(-1.0),
    "diverged losses": _losses(kinds.DIVERGED),
    "huge losses (1e30)": _losses(1e30),
    "huge losses (1e4)": _losses(1e4),
    "wrong losses (50)": _losses(50.0),
    "n = 0": _examples(0),
    "n = -5": _examples(-5),
    "n = 1e9": _examples(10**9),
    "n = 1e15": _examples(10**15),
    # Of what soft and personal methods' clients send beside a model and its losses.
    "NaN shares or sums": _others(float("nan")),
    "huge shares or sums (1e30)": _others(1e30),
    "shares or sums of 0": _others(0.0),
    "NaN beside the model": _beside(float("nan")),
    "huge values beside the model (1e30)": _beside(1e30),
    "huge values beside the model (1e6)": _beside(1e6),
}
"""Faults of a reply's content, by name; "wrong losses (50)" are no more than an honest client could have.

Replies of a wrong form are for test_codec.py and test_fuzz.py.
"""

GRID_FAULTS = ("duplicate reply", "reply of an older round", "no reply")
"""Faults in how replies travel, by name."""
ALL_FAULTS = (*FAULTS, *GRID_FAULTS)


class FaultyGrid(LocalGrid):
    """A LocalGrid some of whose clients are faulty in every round, each in the next of some kinds of fault."""

    def __init__(
        self, app: ClientApp, num_nodes: int, faults: Sequence[str], share: float = 0.2, seed: int = 0
    ) -> None:
        if unknown := set(faults) - set(ALL_FAULTS):
            raise ValueError(f"there are no faults {sorted(unknown)}")
        super().__init__(app, num_nodes)
        self.faults, self.seed = faults, seed
        self.count = int(share * num_nodes) if faults else 0
        self._earlier: dict[int, Message] = {}

    def faulty(self, server_round: int) -> dict[int, str]:
        """Return the partition ids that are faulty in a round, each with its fault."""
        if server_round == 0:
            return {}
        order = np.random.default_rng([self.seed, server_round]).permutation(len(self._contexts))
        return {
            int(client): self.faults[place % len(self.faults)] for place, client in enumerate(order[: self.count])
        }

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        sent = {message_id: self._waiting[message_id] for message_id in message_ids if message_id in self._waiting}
        replies = []
        for reply in super().pull_messages(sent):
            message = sent[reply.metadata.reply_to_message_id]
            node = message.metadata.dst_node_id
            client = int(self._contexts[node].node_config["partition-id"])
            server_round = int(message.content.config_records[kinds.CONFIG].get(kinds.SERVER_ROUND, 0))  # type: ignore[arg-type]
            fault = self.faulty(server_round).get(client)
            replies += [reply] if fault is None else self._spoilt(fault, node, message, reply)
            self._earlier[node] = reply
        return replies

    def _spoilt(self, fault: str, node: int, message: Message, reply: Message) -> list[Message]:
        if fault == "no reply":
            return []
        if fault == "duplicate reply":
            return [reply, reply]
        if fault == "reply of an older round":
            return [self._earlier[node]]
        try:
            return [Message(FAULTS[fault](reply.content), reply_to=message)]
        except RuntimeError as error:
            return [Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)]
