"""Clients that go wrong: runs of the real ClientApp, in which some clients in every round fail in a chosen way.

`FaultyGrid` is a LocalGrid: in every round floor(share * num_nodes) clients, drawn by (seed, round), are faulty in
all their messages. The introduction (round 0) is honest. Hangs and deaths need processes, and are tested elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.strategies.base.models import Models
from florets.strategies.base.report import RoundReport
from florets.strategies.core.metrics import adjusted_rand_index
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


LARGEST = 100.0
"""No weight of these models is so large: without faults the largest is below 1."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to; `ari` is over the clients that are healthy in the last round.

    `largest` is the largest value in its models, those of single clients included; NaN where one is.
    """

    rounds: int
    ari: float
    largest: float
    replies: Counter[str]
    error: str = ""

    @property
    def sound(self) -> bool:
        """Whether the run went to its end, with models as honest training makes them."""
        return not self.error and self.largest < LARGEST

    @property
    def refused(self) -> int:
        """Replies that did not count."""
        return sum(self.replies[kind] for kind in ("error", "missing", "invalid"))


def play(strategy: str, faults: Sequence[str], seed: int, share: float = 0.2, more: tuple[str, ...] = ()) -> Outcome:
    """Run the experiment with some clients faulty in every round, each in the next of these ways."""
    start = ("experiment=digits_label_skew", "eval_every=1000", "round_timeout=0.05")
    config = compose([*start, f"strategy={strategy}", f"seed={seed}", *more])
    task = build_task(config)
    grid = FaultyGrid(app, config.num_clients, faults, share, seed)
    reports: list[RoundReport] = []
    models = build_models(config, task)
    built = build_strategy(config, task)
    error = ""
    try:
        models = built.start(
            grid,
            models,
            num_rounds=config.num_rounds,
            train_config=message_settings(config, task),
            on_round=lambda report, _: reports.append(report),
        ).arrays
    except RuntimeError as problem:
        error = str(problem)
    replies = sum((Counter(report.replies) for report in reports), Counter[str]())
    if not reports:
        return Outcome(0, 0.0, 0.0, replies, error)
    last = reports[-1]
    truth = {client.key: client.cluster for client in built.federation.clients.values()}
    sick = grid.faulty(last.server_round)
    healthy = [key for key in sorted(last.assignment) if int(key) not in sick]
    ari = adjusted_rand_index([truth[key] or 0 for key in healthy], [last.assignment[key] for key in healthy])
    final = Models(models)
    kept = list((built.own_models(final) or {}).values())
    # NumPy's, which is NaN where any is.
    largest = float(np.max([np.abs(values).max() for values in (built.final_models(final).bank, *kept)]))
    return Outcome(len(reports), 1.0 if ari is None else ari, largest, replies, error)
