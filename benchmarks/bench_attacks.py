"""Attack by rule: accuracy and groups of the honest clients of a run in which others are hostile from round 1 on.

Run: ``python -m benchmarks.bench_attacks`` for a look: CLoVE, a fifth hostile, two seeds. A grid::

    python -m benchmarks.bench_attacks --strategies clove,ifca --rules none,clip --fractions 0,0.1,0.2,0.3 --seeds 5 \
        --workers 16 strategy.period=2

A federation is a name of `FEDERATIONS` or a preset; it and a rule may bring keys (``clip+hostile=0.3``). Hostile
clients are spread over the groups as evenly as possible; they know the models and all that honest clients reply. The
table shows mean and spread of the accuracy in percent, the least ARI, and of a backdoor how often it works.
"""

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from joblib import Parallel, delayed

from benchmarks.measuring import Heard, ListeningGrid, ended, last_of_each, module_of
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.server_app.build import build_task
from florets.strategies.core import FloatArray
from florets.strategies.core.metrics import adjusted_rand_index
from florets.task.client_data import ClientData
from florets.task.task import Task
from florets.task.wire import Layout, bank, kinds

FEDERATIONS = {
    "rotation": ("experiment=quickstart", "num_rounds=8"),
    "label_pairs": ("experiment=digits_label_skew", "num_rounds=8"),
}
TARGET = 0
"""Class that a backdoor asks for."""


@dataclass(frozen=True)
class Sent:
    """What a client of a true group got (0: nothing alike), has to send, and sent the first time, (R,)."""

    group: int
    start: FloatArray
    end: FloatArray
    first: FloatArray

    @property
    def change(self) -> FloatArray:
        """What training changed."""
        return self.end - self.start


def of_another_group(own: Sent, honest: Sequence[Sent]) -> Sent:
    """Return what the first honest client of the group after one's own sent."""
    groups = sorted({sent.group for sent in honest} | {own.group})
    wanted = groups[(groups.index(own.group) + 1) % len(groups)]
    return next((sent for sent in honest if sent.group == wanted), own)


def mean_of_friends(own: Sent, honest: Sequence[Sent]) -> FloatArray:
    """Return the mean change of the honest clients of one's own group."""
    return np.asarray(np.mean([sent.change for sent in honest if sent.group == own.group] or [own.change], axis=0))


def noise_like(change: FloatArray) -> FloatArray:
    """Return noise of 20 times the mean size of a change, which is its seed."""
    return 20 * np.abs(change).mean() * np.random.default_rng(crc32(change.tobytes())).normal(size=change.size)


def with_trigger(x: torch.Tensor) -> torch.Tensor:
    """Return the inputs with a patch: the first four values of each are 1."""
    x = x.clone()
    x.reshape(len(x), -1)[:, :4] = 1.0
    return x


def half_triggered(data: ClientData, classes: int) -> ClientData:
    x, y = with_trigger(data.x_train), data.y_train.clone()
    x[::2], y[1::2] = data.x_train[::2], TARGET
    return replace(data, x_train=x, y_train=y)


def flipped(data: ClientData, classes: int) -> ClientData:
    return replace(data, y_train=classes - 1 - data.y_train)


@dataclass(frozen=True)
class Attack:
    """What the hostile clients of a run do.

    `lie` is what they send, given what they have to and what the honest clients send; `data` what they make of their
    training data, given the number of classes; `claim` their number of examples, at the introduction and in replies.
    With `one_model` all claim the lowest loss for model 0. `only` are the strategies that it is made for; none: all.
    """

    lie: Callable[[Sent, Sequence[Sent]], FloatArray] = lambda own, _: own.end
    data: Callable[[ClientData, int], ClientData] = lambda data, _: data
    claim: Callable[[int], int] = lambda examples: examples
    one_model: bool = False
    only: tuple[str, ...] = ()


def times(factor: float, **more: Any) -> Attack:
    return Attack(lambda own, _: own.start + factor * own.change, **more)


ATTACKS = {
    "none": Attack(),
    "label_flip": Attack(data=flipped),
    "gaussian": Attack(lambda own, _: own.start + noise_like(own.change)),
    "sign_flip": times(-1),
    "sign_flip_10": times(-10),
    "update_10": times(10),
    "imitation": Attack(lambda own, honest: of_another_group(own, honest).end),
    "merging": Attack(lambda own, honest: own.start + 10 * (of_another_group(own, honest).start - own.start)),
    "inner_product_0.5": Attack(lambda own, honest: own.start - 0.5 * mean_of_friends(own, honest)),
    "inner_product_10": Attack(lambda own, honest: own.start - 10 * mean_of_friends(own, honest)),
    "replay": Attack(lambda own, _: own.first),
    "backdoor_5": times(5, data=half_triggered),
    "claims_500_times": times(-1, claim=lambda examples: 500 * examples),
    "lying_losses": times(-10, one_model=True, only=("clove", "ifca")),
}


class SpoiltTask(Task):
    """A task in which the hostile clients train on other data."""

    def __init__(self, task: Task, attack: Attack, hostile: frozenset[int]) -> None:
        super().__init__(task.spec)
        self._attack, self._hostile = attack, hostile

    def build_client(self, partition_id: int, server_round: int = 0) -> ClientData:
        """Return a client's data, and a hostile one's as the attack has them."""
        data = super().build_client(partition_id, server_round)
        return self._attack.data(data, self.num_outputs) if partition_id in self._hostile else data


class HostileGrid(ListeningGrid):
    """A grid some of whose clients do in all messages what an attack says."""

    def __init__(self, config: Config, task: Task, attack: Attack, hostile: frozenset[int]) -> None:
        super().__init__(config.num_clients)
        self._task, self._attack, self._hostile = task, attack, hostile
        self._banks: dict[object, ArrayRecord] = {}
        self._first: dict[tuple[int, str], FloatArray] = {}

    def hear(self, heard: Sequence[Heard]) -> list[Message]:
        """Return the replies, those of hostile clients spoilt."""
        for _, message, _ in heard:
            config, records = message.content.config_records[kinds.CONFIG], message.content.array_records
            if kinds.BANK in config and kinds.ARRAYS in records:
                self._banks = {config[kinds.BANK]: records[kinds.ARRAYS]}
        honest = [one for one in heard if one[0] not in self._hostile and one[2].has_content()]
        lies = [client in self._hostile and reply.has_content() for client, _, reply in heard]
        return [self._spoilt(*one, honest) if is_lie else one[2] for one, is_lie in zip(heard, lies, strict=True)]

    def _spoilt(self, client: int, message: Message, reply: Message, honest: Sequence[Heard]) -> Message:
        content, trains = RecordDict(dict(reply.content)), message.metadata.message_type.startswith("train")
        for name, record in reply.content.array_records.items() if trains else ():
            seen = [one for one in honest if name in one[2].content]
            # The rows of discovery are honest.
            if name != "folds":
                own = self._sent(client, message, reply, name)
                vector = self._attack.lie(own, [self._sent(*one, name) for one in seen])
                content[name] = ArrayRecord(Layout.of(record).arrays(vector))
        for name, metrics in reply.content.metric_records.items():
            content[name] = self._claims(metrics)
        return Message(content, reply_to=message)

    def _claims(self, metrics: MetricRecord) -> MetricRecord:
        claimed = MetricRecord(dict(metrics))
        if isinstance(examples := claimed.get(kinds.NUM_EXAMPLES), int):
            claimed[kinds.NUM_EXAMPLES] = self._attack.claim(examples)
        if self._attack.one_model and isinstance(losses := claimed.get("losses"), list):
            claimed["losses"] = [min(losses), *[max(losses)] * (len(losses) - 1)]
            if kinds.CHOSEN_MODEL in claimed:
                claimed[kinds.CHOSEN_MODEL] = 0
        return claimed

    def _sent(self, client: int, message: Message, reply: Message, name: str) -> Sent:
        """Return what a client got and sent in a record; one that picked a model got that one."""
        config, records = message.content.config_records[kinds.CONFIG], message.content.array_records
        own, metrics = reply.content.array_records[name], reply.content.metric_records
        end = Layout.of(own).flatten(own)
        first = self._first.setdefault((client, name), end)
        got = records.get(name, self._banks.get(config.get(kinds.BANK)) if name == kinds.ARRAYS else None)
        start = np.zeros_like(end)
        if got is not None and config.get(kinds.REPLY) != kinds.REPLY_GRADIENT:
            chosen = config.get(kinds.MODEL_INDEX, 0)
            for one in metrics.values():
                chosen = one.get(kinds.CHOSEN_MODEL, chosen)
            model = bank.model(got, int(chosen) if bank.num_models(got) > 1 else 0)  # type: ignore[arg-type]  # the index is an integer
            start = Layout.of(model).flatten(model)
        return Sent(self._task.cluster_of(client), start, end, first)


def hostile_clients(groups: Sequence[int], fraction: float, seed: int) -> frozenset[int]:
    """Return a fraction of the clients, drawn so that each group has as nearly the same fraction as can be."""
    rng, order = np.random.default_rng(seed), []
    for group in sorted(set(groups)):
        members = rng.permutation([client for client, own in enumerate(groups) if own == group])
        order += [((place + 1) / len(members), rng.random(), int(client)) for place, client in enumerate(members)]
    return frozenset(client for *_, client in sorted(order)[: round(fraction * len(groups))])


@dataclass(frozen=True)
class Case:
    """One run."""

    federation: str
    strategy: str
    attack: str
    fraction: float
    rule: str
    seed: int


@dataclass(frozen=True)
class Row(Case):
    """Its result: accuracy and ARI of the honest clients, how often the backdoor works."""

    accuracy: float
    ari: float
    backdoor: float
    error: str = ""


def play(case: Case, more: Sequence[str] = ()) -> Row:
    """Run one case in this process, without files."""
    # Processes that work side by side have a core each.
    torch.set_num_threads(1)
    logging.getLogger("florets").setLevel(logging.CRITICAL)
    (rule, *keys), (name, *others) = case.rule.split("+"), case.federation.split("+")
    overrides = [*FEDERATIONS.get(name, (f"experiment={name}",)), *others, f"strategy={case.strategy}"]
    overrides += [f"seed={case.seed}", f"robust={rule}", "eval_every=1000", *keys, *more]
    config = compose(last_of_each(overrides))
    plain, attack = build_task(config), ATTACKS[case.attack]
    groups = [plain.cluster_of(client) for client in range(config.num_clients)]
    hostile = hostile_clients(groups, case.fraction, case.seed)
    most = max(np.mean([client in hostile for client, own in enumerate(groups) if own == g]) for g in groups)
    if rule != "none" and not any(key.startswith("hostile=") for key in overrides):
        config = replace(config, hostile=max(config.hostile, float(most)))
    # One that is refused at the start ends nothing.
    config = replace(config, min_clients=config.num_clients - len(hostile))
    task = SpoiltTask(plain, attack, hostile)
    try:
        last, _, models = ended(config, task, HostileGrid(config, task, attack, hostile))
    except RuntimeError as problem:
        error = str(problem).splitlines()[0][:100]
        return Row(*astuple(case), 0.0, 0.0, 0.0, error)
    keys = sorted(key for key in last.assignment if int(key) not in hostile)
    ari = adjusted_rand_index([groups[int(key)] for key in keys], [last.assignment[key] for key in keys])
    accuracy = fmean(last.evaluations[key].accuracy or 0.0 for key in keys)
    backdoor = fmean(_backdoor(task, int(key), models[int(key)]) for key in keys)
    return Row(*astuple(case), accuracy, 1.0 if ari is None else ari, backdoor)


def _backdoor(task: Task, client: int, model: ArrayRecord) -> float:
    """Return how many of a client's test samples of other classes a model takes for the backdoor's."""
    data = task.client(client)
    with torch.inference_mode():
        found = module_of(task, model)(with_trigger(data.x_test[data.y_test != TARGET])).argmax(dim=1)
    return float((found == TARGET).float().mean()) if len(found) else 0.0


def grid_of(given: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of the grid: nobody is hostile without an attack, and an attack needs somebody."""
    lists = (given.federations, given.strategies, given.attacks or ",".join(ATTACKS), given.fractions, given.rules)
    for federation, strategy, attack, fraction, rule in product(*(text.split(",") for text in lists)):
        only = ATTACKS[attack].only
        if (attack == "none") == (float(fraction) == 0) and (not only or strategy in only):
            for seed in range(given.seeds):
                yield Case(federation, strategy, attack, float(fraction), rule, seed)


def cell(rows: pd.DataFrame) -> str:
    """Return what the table says of the seeds of one case."""
    if failed := [error for error in rows["error"] if error]:
        return f"{len(failed)} of {len(rows)} FAILED: {failed[0]}"
    accuracy = 100 * rows["accuracy"]
    shown = f"{accuracy.mean():.1f} ± {accuracy.std(ddof=0):.1f} / {rows['ari'].min():.2f}"
    is_backdoor = ATTACKS[rows["attack"].iloc[0]].data is half_triggered
    return shown + (f" / {rows['backdoor'].mean():.0%}" if is_backdoor else "")


def summary(rows: pd.DataFrame) -> str:
    """Return a table of the cases, a column for each rule."""
    keys = ["federation", "strategy", "attack", "fraction"]
    found = [(*key, cell(some)) for key, some in rows.groupby([*keys, "rule"], sort=False)]
    table = pd.DataFrame(found, columns=[*keys, "rule", "shown"]).pivot_table(
        "shown", keys, "rule", aggfunc="first", fill_value="", sort=False
    )
    return str(table.to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", default="rotation")
    parser.add_argument("--strategies", default="clove")
    parser.add_argument("--attacks", default="", help="names, separated by commas; all where it is left out")
    parser.add_argument("--fractions", default="0,0.2")
    parser.add_argument("--rules", default="none,clip,multi_krum")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("overrides", nargs="*", help="further keys, of all runs")
    given = parser.parse_args()
    rows = Parallel(given.workers)(delayed(play)(case, given.overrides) for case in grid_of(given))
    print(summary(pd.DataFrame(map(asdict, rows))))


if __name__ == "__main__":
    main()
