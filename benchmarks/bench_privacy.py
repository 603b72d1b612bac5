"""Attacks on privacy, run against ourselves: membership and group inference on final models, inversion of updates.

Run: ``python -m benchmarks.bench_privacy`` for a look. All cases::

    python -m benchmarks.bench_privacy --all --seeds 5 --workers 4

A case is ``federation|strategy|privacy``; a strategy may bring keys (``fedavg+averaging=gradients``), and privacy is
none, secure, or a kind and epsilon (``central:8``). Models of the other seeds are the reference. ``groups of M x n``:
digits turned by quarters, M clients a turn with n records each; ``clients of n``: the server reads what eight send.
"""

import argparse
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import pandas as pd
import torch
from flwr.app import ArrayRecord, Message
from joblib import Parallel, delayed
from sklearn.metrics import roc_auc_score, roc_curve

from benchmarks.measuring import Heard, ListeningGrid, ended, last_of_each, module_of
from florets.conf.compose import compose
from florets.conf.schema import Config
from florets.server_app.build import build_task
from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.metrics import adjusted_rand_index
from florets.task.task import Task
from florets.task.wire import Layout, bank, kinds

TINY, SMALL, MEDIUM, LARGE = (f"groups of {size}" for size in ("2 x 30", "3 x 30", "25 x 28", "250 x 3"))
PROBE, GRADIENTS = "cfl_gp+averaging=gradients", "fedavg+averaging=gradients"
ADAM, SGD = (f"fedavg+train.local_epochs=10+train.optimizer={name}" for name in ("adam", "sgd"))
LINEAR, NOISE = "task.model=linear", ("none", "central:8", "central:2")
LOOK = (f"{SMALL}|clove|none", f"clients of 1|{PROBE}|none")
ALL = (
    *(f"{size}|{name}|none" for size in (SMALL, MEDIUM) for name in ("clove", "ifca", "fedavg", "local")),
    f"{SMALL}|clove|central:8",
    *(f"{MEDIUM}|{name}+{LINEAR}|{noise}" for name in ("oracle", "ifca") for noise in NOISE),
    f"{MEDIUM}|ifca+{LINEAR}|local:8",
    f"clients of 1|{PROBE}+{LINEAR}|none",
    *(f"clients of {count}|{name}|none" for name in (PROBE, SGD, ADAM) for count in (1, 2, 8)),
    *(f"clients of 1|{GRADIENTS}|{noise}" for noise in ("central:8", "local:1000", "local:8", "local:2")),
    "clients of 1|fedavg|secure",
    *(f"{size}|oracle|{noise}" for size in (TINY, SMALL) for noise in ("none", "central:1000")),
    *(f"{LARGE}|oracle+{LINEAR}|{noise}" for noise in NOISE),
)
COLUMNS = ["case", "seed", "measure", "value"]


def keys_of(case: str) -> list[str]:
    """Return the overrides of a case."""
    federation, strategy, privacy = case.split("|")
    (name, *others), (kind, _, epsilon) = strategy.split("+"), privacy.partition(":")
    sizes = [int(size) for size in re.findall(r"\d+", federation)]
    keys = ["experiment=quickstart", f"strategy={name}"]
    if federation.startswith("clients"):
        keys += ["num_clients=8", "num_rounds=1", "train.local_epochs=1"]
    else:
        # Few clients train longer.
        epochs, rounds = (10, 20) if sizes[0] < 10 else (5, 10)
        keys += [f"num_clients={4 * sizes[0]}", f"num_rounds={rounds}", f"train.local_epochs={epochs}"]
        keys += ["train.batch_size=10"]
    keys += [f"task.partition_options={{split: independent, samples_per_client: {sizes[-1]}}}"]
    if kind != "none":
        private = [f"privacy.kind={kind}", f"privacy.epsilon={epsilon}"]
        keys += ["secure_aggregation=true"] if kind == "secure" else private
    return last_of_each([*keys, "eval_every=1000", *others])


class CuriousGrid(ListeningGrid):
    """A grid that keeps how clients change the first layer: each unit's weights and, where it has one, bias."""

    def __init__(self, config: Config, listens: bool) -> None:
        super().__init__(config.num_clients)
        self.changes: dict[int, list[FloatArray]] = {}
        self._listens = listens

    def hear(self, heard: Sequence[Heard]) -> list[Message]:
        """Return the replies, and keep what they show."""
        for client, message, reply in heard:
            if self._listens and message.metadata.message_type.startswith("train"):
                self.changes.setdefault(client, []).append(self._change(message, reply.content.array_records))
        return [reply for *_, reply in heard]

    def _change(self, message: Message, records: Mapping[str, ArrayRecord]) -> FloatArray:
        heard = records[kinds.ARRAYS]
        model = bank.model(message.content.array_records[kinds.ARRAYS], 0)
        layout = Layout.of(model)
        if kinds.MASKED in heard:
            change = heard[kinds.MASKED].numpy().view(np.int64).astype(np.float64)
        elif message.content.config_records[kinds.CONFIG].get(kinds.REPLY) == kinds.REPLY_GRADIENT:
            change = layout.flatten(heard)
        else:
            change = layout.flatten(heard) - layout.flatten(model)
        weight, *rest = layout.entries
        units = change[: weight.size].reshape(weight.shape)
        if rest and len(rest[0].shape) == 1:
            units = np.column_stack([units, change[weight.size :][: len(units)]])
        return np.asarray(units)


@dataclass(frozen=True)
class Played:
    """A run that has ended: clients by true group, the models that they end with, of which there are `k`."""

    task: Task
    grid: CuriousGrid
    groups: dict[int, list[int]]
    models: dict[int, ArrayRecord]
    personal: bool
    k: int
    accuracy: float
    ari: float


def play(case: str, seed: int) -> Played:
    """Run one seed of a case in this process, without files."""
    config = compose([*keys_of(case), f"seed={seed}"])
    task, grid = build_task(config), CuriousGrid(config, listens=case.startswith("clients"))
    (last, k, models), groups = ended(config, task, grid), dict[int, list[int]]()
    for client in models:
        groups.setdefault(task.cluster_of(client), []).append(client)
    # Clients stand in the order of their numbers, which their keys write with leading zeros.
    found = [last.assignment[key] for key in sorted(last.assignment, key=int)]
    ari = adjusted_rand_index([task.cluster_of(client) for client in models], found) or 0.0
    accuracy = fmean(last.evaluations[key].accuracy or 0.0 for key in last.assignment)
    return Played(task, grid, groups, models, config.strategy.name == "local", k, accuracy, ari)


def hits(members: FloatArray, others: FloatArray) -> tuple[float, float]:
    """Return the area under the ROC curve of scores, and the rate of members at 1 % false positives."""
    truth, scores = np.repeat([1, 0], [len(members), len(others)]), np.concatenate([members, others])
    false, true, _ = roc_curve(truth, scores)
    return float(roc_auc_score(truth, scores)), float(true[false <= 0.01].max())


def calibrated(phi: FloatArray, inside: BoolArray, runs: IntArray) -> FloatArray:
    """Return how far each model's confidence in each record (U, N) is from that of models that never saw it.

    `phi` are logits of the probability of the true class, `inside` says which records a model's clients trained on,
    `runs` (U,) which models to leave out: those of the same run.

    Source: Carlini et al. 2022, Sec. IV, the offline likelihood ratio attack.
    Deviation: a record's spread is drawn halfway to the mean of all, because few models are at hand.
    """
    scores = np.zeros_like(phi)
    for run in np.unique(runs):
        own = runs == run
        known = np.ma.masked_array(phi[~own], inside[~own])
        # A record that all of them have seen is compared with all records.
        centre = known.mean(axis=0).filled(known.mean())
        spread = known.std(axis=0).filled(known.std())
        scores[own] = (phi[own] - centre) / (0.5 * (spread + spread.mean()) + 1e-9)
    return scores


def confidences(task: Task, model: ArrayRecord, x: torch.Tensor, y: IntArray) -> FloatArray:
    """Return the logit of the probability of each record's class, (N,)."""
    with torch.inference_mode():
        predicted = torch.softmax(module_of(task, model)(x).double(), dim=1).numpy()
    true = np.clip(predicted[np.arange(len(y)), y], 1e-12, 1 - 1e-12)
    return np.asarray(np.log(true / (1 - true)))


def _turned(run: Played, group: int, part: str) -> tuple[torch.Tensor, IntArray]:
    """Return all records as a group's clients have them."""
    x, y = (getattr(run.task.data, f"{of}_{part}") for of in "xy")
    transform = run.task.shards[run.groups[group][0]].transform
    x, y = (x, y) if transform is None else transform(x, y)
    return torch.from_numpy(np.array(x, dtype=np.float32)), np.asarray(y)


def membership(runs: Sequence[Played]) -> Iterator[tuple[int, str, float]]:
    """Yield, by run, how well the records and the clients that a model was trained on are distinguished from others.

    A model is attacked for each group that has it, or, of personal models, for each client. Who was not trained on
    are the records in no client of the group, and clients made of them.
    """
    # Units: a model, the group it is attacked for, its clients.
    units: list[tuple[int, int, list[int]]] = []
    for number, run in enumerate(runs):
        for group, clients in run.groups.items():
            units += [(number, group, some) for some in (([one] for one in clients) if run.personal else [clients])]
    size = len(runs[0].task.data.x_train)
    phi, inside = np.zeros((len(units), size)), np.zeros((len(units), size), dtype=bool)
    for row, (number, group, clients) in enumerate(units):
        run = runs[number]
        phi[row] = confidences(run.task, run.models[clients[0]], *_turned(run, group, "train"))
        inside[row, np.concatenate([run.task.shards[client].train for client in clients])] = True
    scores = calibrated(phi, inside, np.array([number for number, *_ in units]))
    for number, run in enumerate(runs):
        own = [row for row, unit in enumerate(units) if unit[0] == number]
        trained, invented = list[float](), list[float]()
        for row in own:
            count = len(run.task.shards[units[row][2][0]].train)
            left = np.random.default_rng(row).permutation(np.flatnonzero(~inside[row]))
            invented += [scores[row][left[n : n + count]].mean() for n in range(0, len(left) - count, count)]
            trained += [scores[row][run.task.shards[client].train].mean() for client in units[row][2]]
        for name, members, others in (
            ("loss", phi[own][inside[own]], phi[own][~inside[own]]),
            ("record", scores[own][inside[own]], scores[own][~inside[own]]),
            ("client", np.array(trained), np.array(invented)),
        ):
            auc, few = hits(members, others)
            yield from ((number, f"{name} AUC", auc), (number, f"{name} TPR", few))


def groups_shown(run: Played) -> Iterator[tuple[str, float]]:
    """Yield what models show of groups: the attribute that a group shares, and the group of a known record.

    The attribute is the turn under which public images fit the model best.
    Records are those that were trained on, and as many that were not; of K groups chance is 1 / K.
    """
    task, groups = run.task, list(run.groups)
    model_of = {group: run.models[clients[0]] for group, clients in run.groups.items()}
    turned, found = [_turned(run, group, "test") for group in groups], list[bool]()
    for group in groups:
        fit = [confidences(task, model_of[group], *records).mean() for records in turned]
        found.append(groups[int(np.argmax(fit))] == group)
    yield "attribute", fmean(found)
    for name, part in (("placed", "train"), ("placed, not trained on", "test")):
        right = list[bool]()
        for group in groups:
            some = [task.client(client) for client in run.groups[group][:20]]
            x, y = (torch.cat([getattr(data, f"{of}_{part}") for data in some])[:200] for of in "xy")
            fits = [confidences(task, model_of[other], x, y.numpy()) for other in groups]
            right += [groups[best] == group for best in np.argmax(fits, axis=0)]
        yield name, fmean(right)


def inverted(units: FloatArray, width: int, single: bool) -> FloatArray:
    """Return inputs (c, width) that the changes of a first layer's units show, each of its weights and its bias.

    A unit's weights change by a mixture of inputs, and its bias by the sum of the mixture's shares: their ratio is an
    input where one alone moved the unit. Of a single input all units show the same, so that their main direction is
    taken. Without a bias the length is unknown: the largest value is 1.
    """
    if single:
        units = np.linalg.svd(units, full_matrices=False)[2][:1]
    last = units[:, -1:] if units.shape[1] > width else units[:, np.abs(units).max(axis=0).argmax(), np.newaxis]
    moved = np.abs(last[:, 0]) > 1e-9 * np.abs(last).max()
    return np.asarray(units[moved, :width] / last[moved])


def likeness(shown: FloatArray, true: FloatArray) -> tuple[float, float, FloatArray]:
    """Return the correlation of an input (d,) with the most similar of those shown, its error, and that one."""
    similar = [float(np.corrcoef(one, true)[0, 1]) if one.std() > 0 else 0.0 for one in shown]
    best = shown[int(np.argmax(similar))]
    return max(similar), float(np.square(best - true).sum() / np.square(true).sum()), best


def inversion(run: Played) -> Iterator[tuple[str, float]]:
    """Yield how well the server reads inputs from what clients send; ``others``: of the next client."""
    inputs = {client: run.task.client(client).x_train.flatten(1).double().numpy() for client in run.grid.changes}
    own, others = list[tuple[float, float]](), list[float]()
    for client, true in inputs.items():
        shown = inverted(np.concatenate(run.grid.changes[client]), len(true[0]), len(true) == 1)
        own += [likeness(shown, one)[:2] for one in true]
        others += [likeness(shown, one)[0] for one in inputs[(client + 1) % len(inputs)]]
    found, errors = np.transpose(own)
    yield from (("correlation", found.mean()), ("exact", (found > 0.999).mean()), ("error", np.median(errors)))
    yield "others", fmean(others)


def attacked(case: str, seeds: Sequence[int]) -> pd.DataFrame:
    """Run all seeds of a case, attack what is left, and return the figures, a row each."""
    begin = time.process_time()
    # Processes that work side by side have a core each.
    torch.set_num_threads(1)
    logging.getLogger("florets").setLevel(logging.CRITICAL)
    runs = [play(case, seed) for seed in seeds]
    shows = inversion if case.startswith("clients") else groups_shown
    found = [(n, *shown) for n, run in enumerate(runs) for shown in (("accuracy", run.accuracy), *shows(run))]
    if case.startswith("groups"):
        found += [(n, "ARI", run.ari) for n, run in enumerate(runs)] + list(membership(runs))
    found.append((0, "CPU seconds", time.process_time() - begin))
    return pd.DataFrame([(case, seeds[n], *figure) for n, *figure in found], columns=COLUMNS)


def summary(rows: pd.DataFrame) -> str:
    """Return each figure's mean and spread over the seeds."""
    found = rows.groupby(COLUMNS[::2], sort=False)["value"].agg(["mean", lambda values: values.std(ddof=0)])
    return str(found.round(3).to_string(header=["mean", "spread"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=LOOK)
    parser.add_argument("--all", dest="cases", action="store_const", const=ALL, help="all cases of the page")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    given = parser.parse_args()
    # Seeds that are attacked with each other's models run in one process.
    rows = Parallel(given.workers)(delayed(attacked)(case, range(given.seeds)) for case in given.cases)
    print(summary(pd.concat(rows)))


if __name__ == "__main__":
    main()
