"""A ClientApp of vectors: each client pulls a model towards a target of its own, folds with noise.

A model is the vector `w`. Training moves it half of the way to the client's target; what a fold changes is that, plus
noise of the client and fold.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from florets.engines.local_grid import LocalGrid
from florets.strategies.shared.messages import QUERY_FOLDS
from florets.task.wire import bank, kinds
from florets.task.wire.flower import INSTALLED
from florets.task.wire.folds import RowForm
from tests.fakes import asked_for

SIZE = 60
Fault = Callable[[RecordDict], RecordDict]


def vector(values: np.ndarray) -> ArrayRecord:
    return ArrayRecord({"0/w": Array(values.astype(np.float32))})


def directions(count: int) -> np.ndarray:
    """Targets that share nothing: (count, SIZE), of length 1."""
    return np.linalg.qr(np.random.default_rng(5).standard_normal((SIZE, count)))[0].T


@dataclass
class FoldClients:
    """Noise of a fold has one length, or one in proportion to the way to the target (`noise_of_pull`).

    `targets` are looked up by round where they are a function of it; `faults` as in `tests.fakes`."""

    targets: Sequence[np.ndarray] | Callable[[int], Sequence[np.ndarray]]
    noise: float = 0.8
    noise_of_pull: float = 0.0
    examples: Sequence[int] | None = None
    faults: Mapping[tuple[str, int, int], Fault] = field(default_factory=dict)
    seen: list[tuple[str, int, int]] = field(default_factory=list)
    contents: list[RecordDict] = field(default_factory=list)

    def grid(self) -> LocalGrid:
        app = ClientApp()
        for register in (app.query("hello"), app.query("custom"), app.train(), app.train("custom"), app.evaluate()):
            register(self._handle)
        app.evaluate("losses")(self._handle)
        return LocalGrid(app, len(self._targets(1)))

    def asked(self, kind: str, server_round: int) -> list[int]:
        return [c for k, r, c in self.seen if (k, r) == (kind, server_round)]

    def _targets(self, server_round: int) -> Sequence[np.ndarray]:
        return self.targets(server_round) if callable(self.targets) else self.targets

    def _handle(self, message: Message, context: Context) -> Message:
        client, kind = int(context.node_config["partition-id"]), asked_for(message)
        config = message.content.config_records[kinds.CONFIG]
        server_round = int(config.get(kinds.SERVER_ROUND, 0))  # type: ignore[arg-type]
        self.seen.append((kind, server_round, client))
        self.contents.append(message.content)
        content = RecordDict(self._answer(kind, client, message.content, max(server_round, 1)))
        fault = self.faults.get((kind, server_round, client))
        return Message(fault(content) if fault else content, reply_to=message)

    def _answer(self, kind: str, client: int, content: RecordDict, server_round: int) -> dict[str, object]:
        n = self.examples[client] if self.examples else 100
        if kind == kinds.HELLO:
            return {
                kinds.METRICS: MetricRecord(
                    {kinds.NUM_EXAMPLES: n, kinds.CLUSTER: -1, "num-partitions": len(self._targets(1))}
                ),
                kinds.CONFIG: ConfigRecord(
                    {
                        kinds.CLIENT_KEY: str(client),
                        kinds.DEVICE: "cpu",
                        kinds.FINGERPRINT: "fake",
                        kinds.FLOWER: INSTALLED,
                    }
                ),
            }
        target = self._targets(server_round)[client]
        if kind == kinds.LOSSES:
            models = [one["w"].numpy() for one in bank.models(content.array_records[kinds.ARRAYS])]
            losses = [float(((model - target) ** 2).sum()) for model in models]
            metrics = {"losses": losses, kinds.NUM_EXAMPLES: n, "kept": 0}
            return {kinds.METRICS: MetricRecord(metrics)}  # type: ignore[arg-type]
        w = received(content)
        loss = float(((w - target) ** 2).sum())
        if kind == kinds.EVALUATE:
            return {kinds.METRICS: MetricRecord({kinds.EVAL_LOSS: loss, kinds.NUM_EXAMPLES: n})}
        answer: dict[str, object] = {}
        numbers = {kinds.NUM_EXAMPLES: n}
        if kind != QUERY_FOLDS:
            moved = ((w + target) / 2).astype(np.float32)
            answer[kinds.ARRAYS] = ArrayRecord({"w": Array(moved)})
            numbers |= {kinds.TRAIN_LOSS: loss}  # type: ignore[dict-item]
        if kind != kinds.TRAIN:
            common = received(content, kinds.COMMON) if kinds.COMMON in content else w
            answer["folds"] = ArrayRecord({"folds": Array(self._rows(content, client, target - common))})
        answer[kinds.METRICS] = MetricRecord(numbers)  # type: ignore[arg-type]
        return answer

    def _rows(self, content: RecordDict, client: int, pull: np.ndarray) -> np.ndarray:
        config = content.config_records[kinds.CONFIG]
        folds, seed = int(config[kinds.NUM_FOLDS]), int(config[kinds.FOLD_SEED])  # type: ignore[arg-type]
        rng = np.random.default_rng([client, folds, seed])
        size = self.noise_of_pull * np.linalg.norm(pull) or self.noise
        noise = size * rng.standard_normal((folds, SIZE)) / np.sqrt(SIZE)
        width = int(config[kinds.FOLD_WIDTH])  # type: ignore[arg-type]
        form = RowForm.read(width, SIZE)
        return form.pack((pull / 2 + noise).astype(np.float32), np.random.default_rng(seed))


def received(content: RecordDict, record: str = kinds.ARRAYS) -> np.ndarray:
    (array,) = content.array_records[record].values()
    return array.numpy().astype(np.float64)
