"""Discovery against clients of vectors: groups, none, small clients, faults, samples of clients, changing groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result
from sklearn.datasets import load_wine

import florets
from florets.engines.local_grid import LocalGrid
from florets.strategies.base.report import ADVICE, EVIDENCE, STABLE_FROM, RoundReport
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.discovery.strategy import Discovery
from florets.strategies.fedavg.strategy import FedAvg
from florets.strategies.ifca.strategy import IFCA
from florets.strategies.shared.messages import QUERY_FOLDS, TRAIN_FOLDS
from florets.task.wire import bank, kinds
from florets.task.wire.flower import INSTALLED
from florets.task.wire.folds import RowForm
from tests.fakes import Fault, asked_for, lost

SIZE = 60


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


START = np.zeros(SIZE)
A, B, C = directions(3)
TWO = [A, A, A, B, B, B]


def run(strategy: Any, clients: FoldClients, rounds: int = 2) -> tuple[Result, list[RoundReport]]:
    reports: list[RoundReport] = []
    result = strategy.start(
        clients.grid(), vector(START), num_rounds=rounds, on_round=lambda report, _: bool(reports.append(report))
    )
    return result, reports


def models(record: ArrayRecord) -> np.ndarray:
    return np.stack([one["w"].numpy() for one in bank.models(record)])


def evidence(report: RoundReport) -> dict[str, Any]:
    found = report.details[EVIDENCE]
    assert isinstance(found, dict)
    return found


def noise(clients: int) -> list[np.ndarray]:
    """One target for all: folds differ by noise alone."""
    return [A] * clients


def test_groups_are_found_in_round_1_and_each_starts_from_the_mean_of_its_members() -> None:
    clients = FoldClients([A, A, B, A, B, B])
    strategy = Discovery(k="auto", level=0.05, seed=1)
    result, (first,) = run(strategy, clients, 1)
    assert strategy.assignment == {"0": 0, "1": 0, "2": 1, "3": 0, "4": 1, "5": 1}
    # Halfway from zero to the groups' targets, in the one exchange that round 1 has.
    np.testing.assert_allclose(models(result.arrays), [A / 2, B / 2], atol=1e-6)
    assert [kind for kind, r, _ in clients.seen if r == 1] == [TRAIN_FOLDS] * 6 + [kinds.EVALUATE] * 6
    found = evidence(first)
    assert (found["verdict"], found["k"], found["sizes"]) == ("groups", 2, (3, 3))
    assert found["text"].startswith("2 groups of 3, 3 clients (p = 0.025; score 0.")
    assert found["advice"] == ""
    assert found["groups"] == (0, 0, 0, 1, 1, 1)
    assert found["clients"] == ("0", "1", "3", "2", "4", "5")
    assert first.details[STABLE_FROM] == 2


def test_clients_alike_are_given_fedavgs_model_to_the_last_bit() -> None:
    examples = [100, 70, 90, 200, 50, 80, 75, 60]
    result, reports = run(Discovery(k="auto", level=0.05), FoldClients(noise(8), examples=examples), 3)
    fedavg, _ = run(FedAvg(), FoldClients(noise(8), examples=examples), 3)
    found = evidence(reports[0])
    assert found["verdict"] == "none"
    assert found["p_value"] > 0.05
    assert found["text"].startswith("no groups: the clients cannot be told apart (p = ")
    assert models(result.arrays).tobytes() == models(fedavg.arrays).tobytes()
    assert reports[-1].phase == "training"
    assert set(reports[-1].assignment.values()) == {0}


def test_clients_that_all_differ_share_a_model_and_are_told_what_to_try() -> None:
    clients = FoldClients(list(directions(8)))
    result, (first,) = run(Discovery(k="auto", level=0.05), clients, 1)
    found = evidence(first)
    assert found["verdict"] == "all_differ"
    assert found["text"].startswith("every client differs")
    assert "strategy=local" in found["advice"]
    assert len(models(result.arrays)) == 1


def test_clients_with_few_samples_are_placed_in_round_1_and_train_with_their_group() -> None:
    examples = [100] * 6 + [10, 10]
    clients = FoldClients([*TWO, A, B], examples=examples)
    strategy = Discovery(k="auto", level=0.05)
    _, (first,) = run(strategy, clients, 1)
    assert (strategy.assignment["6"], strategy.assignment["7"]) == (0, 1)
    folds = [c[kinds.CONFIG][kinds.NUM_FOLDS] for c in clients.contents if kinds.NUM_FOLDS in c[kinds.CONFIG]]
    assert folds == [4] * 6 + [1] * 2
    assert "2 clients with too few samples placed afterwards" in evidence(first)["text"]


def test_a_client_that_no_group_fits_is_told_and_trains_nothing() -> None:
    # Both come in round 2; client 6 has too few samples to say that it fits nowhere.
    faults = {(TRAIN_FOLDS, 1, client): lost for client in (6, 7)}
    clients = FoldClients([*TWO, C, C], examples=[100] * 6 + [10, 100], faults=faults, noise=0.2)
    strategy = Discovery(k="auto", level=0.05)
    _, reports = run(strategy, clients, 3)
    assert [str(report.details.get(ADVICE))[:26] for report in reports] == [
        "None",
        "no group fits client 7: le",
        "None",
    ]
    assert len(strategy.assignment) == 7
    assert clients.asked(kinds.TRAIN, 3) == list(range(7))
    assert not clients.asked(QUERY_FOLDS, 3), "they have been asked, and are not asked again"


def with_rows(values: np.ndarray) -> Any:
    def fault(content: RecordDict) -> RecordDict:
        content["folds"] = ArrayRecord({"folds": Array(values)})
        return content

    return fault


ROWS = np.ones((4, SIZE), dtype=np.float32)
FAULTY = {
    "lost": lost,
    "nan": with_rows(np.where(np.eye(4, SIZE) > 0, np.nan, ROWS).astype(np.float32)),
    "shape": with_rows(ROWS[:3]),
    "dtype": with_rows(ROWS.astype(np.float64)),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_client_whose_reply_is_no_good_is_placed_when_it_comes_again(fault: str) -> None:
    clients = FoldClients([*TWO, B], faults={(TRAIN_FOLDS, 1, 6): FAULTY[fault]})
    strategy = Discovery(k="auto", level=0.05)
    _, reports = run(strategy, clients, 2)
    assert "6" not in reports[0].assignment
    assert sum(reports[0].replies.values()) - reports[0].replies["ok"] == 1
    assert clients.asked(QUERY_FOLDS, 2) == [6]
    assert strategy.assignment["6"] == strategy.assignment["5"] == 1
    # It was sent the common model of round 1, not one of the two of today.
    (asked,) = (c for (kind, _, _), c in zip(clients.seen, clients.contents, strict=True) if kind == QUERY_FOLDS)
    np.testing.assert_array_equal(asked.array_records[kinds.ARRAYS]["w"].numpy(), START)


def test_a_sample_of_the_clients_trains_one_model_until_enough_have_been_seen() -> None:
    # Three of four clients are enough.
    clients = FoldClients([A, B] * 8)
    strategy = Discovery(k="auto", level=0.05, fraction_train=0.5, seed=2)
    _, reports = run(strategy, clients, 6)
    opened = [report for report in reports if evidence_of(report) == "open"]
    assert opened
    assert len(opened) < 6
    decided = reports[len(opened)]
    assert evidence(decided)["verdict"] == "groups"
    assert evidence(decided)["seen"] >= 12
    assert "the search for groups waits until 12 clients have taken part (8 so far)" in evidence(reports[0])["text"]
    # Until then one model, trained on; rows come from the common one, and once from each client.
    assert [len(set(report.assignment.values())) for report in opened] == [1] * len(opened)
    again = [c for kind, r, c in clients.seen if kind == TRAIN_FOLDS]
    assert len(again) == len(set(again))
    second = [c for (k, r, _), c in zip(clients.seen, clients.contents, strict=True) if (k, r) == (TRAIN_FOLDS, 2)]
    assert all((c.array_records[kinds.COMMON]["w"].numpy() == 0).all() for c in second)
    assert second
    assert all(c.array_records[kinds.ARRAYS]["w"].numpy().any() for c in second)
    assert all(group == int(key) % 2 for key, group in strategy.assignment.items()) or all(
        group == 1 - int(key) % 2 for key, group in strategy.assignment.items()
    )


def evidence_of(report: RoundReport) -> str | None:
    return evidence(report)["verdict"] if EVIDENCE in report.details else None


def test_a_regression_waits_until_the_model_has_learned_what_all_share() -> None:
    targets = [10 * C + A] * 5 + [10 * C + B] * 5
    clients = FoldClients(targets, noise_of_pull=0.8)
    strategy = Discovery(k="auto", level=0.05, seed=1, loss="squared_error")
    _, reports = run(strategy, clients, 10)
    # The way that all share is halved in each round. In rounds 7 and 8 it was 0.22 and 0.11 of a client's own.
    assert [report.phase for report in reports] == [*["training"] * 8, "discovery", "stable"]
    assert (
        evidence(reports[0])["text"]
        == "the search for groups waits until the model has learned what all clients share"
    )
    assert not any(report.details for report in reports[1:8])
    assert evidence(reports[8])["sizes"] == (5, 5)
    rates = [content.config_records[kinds.CONFIG].get(kinds.FOLD_RATE) for content in clients.contents]
    assert [rate for rate in rates if rate is not None] == [0.001] * 10
    assert strategy.state.move is None


@pytest.mark.parametrize("algorithm", [CLoVE, IFCA])
def test_a_start_from_updates_sends_one_model_and_gives_each_group_its_mean(algorithm: Any) -> None:
    clients = FoldClients(TWO)
    strategy = algorithm(k=2, first_round="update")
    first = ArrayRecord({f"{k}/w": Array(np.full(SIZE, k, dtype=np.float32)) for k in range(2)})
    result = strategy.start(clients.grid(), first, num_rounds=1)
    assert strategy.assignment == {"0": 0, "1": 0, "2": 0, "3": 1, "4": 1, "5": 1}
    np.testing.assert_allclose(models(result.arrays), [A / 2, B / 2], atol=1e-6)
    sent = [c for (kind, _, _), c in zip(clients.seen, clients.contents, strict=True) if kind == kinds.TRAIN]
    assert [list(c.array_records[kinds.ARRAYS]) for c in sent] == [["w"]] * 6


def verdicts(reports: list[RoundReport]) -> list[str]:
    found = [report.details.get(EVIDENCE) for report in reports]
    return [str(one["verdict"]) for one in found if isinstance(one, dict)]


def test_rows_that_are_lost_are_waited_for_some_rounds() -> None:
    def lose(rounds: int) -> dict[tuple[str, int, int], Fault]:
        return {(TRAIN_FOLDS, r, client): lost for r in range(1, rounds + 1) for client in (0, 1, 2)}

    back = FoldClients(TWO, faults=lose(1))
    assert verdicts(run(Discovery(k="auto", level=0.05), back, 3)[1]) == ["open", "groups"]
    # Who never answers does not keep the others waiting for ever.
    gone = FoldClients(TWO, faults=lose(9))
    assert verdicts(run(Discovery(k=1), gone, 4)[1]) == ["open", "open", "none"]


LINEAR = {"regression": True, "task.model": "linear", "task.model_options": {"bias": True}, "train.solver": "newton"}


def sites(levels: Sequence[float], slopes: Sequence[float], records: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    made = {}
    for number, (level, slope) in enumerate(zip(levels, slopes, strict=True)):
        x = rng.standard_normal((records, 3))
        y = x @ [slope, -1.0, 0.5] + level + rng.standard_normal(records)
        made[f"s{number:02}"] = (x.astype(np.float32), y.astype(np.float32))
    return made


@pytest.mark.parametrize(
    ("levels", "slopes", "differs"),
    [
        pytest.param(np.linspace(-2, 2, 12), [1.0] * 12, "levels", marks=pytest.mark.slow),
        ([0.0] * 8, [1.0, -1.0] * 4, "coefficients"),
        pytest.param([0.0] * 12, [1.0] * 12, "nothing", marks=pytest.mark.slow),
    ],
)
def test_sites_of_a_linear_model_differ_in_levels_or_coefficients(
    tmp_path: Path, levels: Sequence[float], slopes: Sequence[float], differs: str
) -> None:
    found = florets.discover(clients=sites(levels, slopes), results_dir=tmp_path, **LINEAR)
    assert found.evidence["differs"] == differs
    assert differs != "coefficients" or (found.k, found.evidence["stability"]) == (2, 1.0)
    assert ("personal=intercept" in found.text) == (differs == "levels")
    assert ("clients differ in levels alone" in found.text) == (differs == "levels")


def test_groups_are_looked_for_once_gradients_and_the_ridge_cancel(tmp_path: Path) -> None:
    # Classes of wine are separable: at the minimum the ridge holds the coefficients, and gradients point outwards.
    wine = load_wine()
    order = np.random.default_rng(0).permutation(len(wine.target))
    clients = [(wine.data[rows], wine.target[rows]) for rows in np.array_split(order, 5)]
    keys = {key: value for key, value in LINEAR.items() if key != "regression"}
    found = florets.discover(clients=clients, results_dir=tmp_path, **keys)
    assert found.k == 1
    assert len(found.run.rounds) < 13


def test_a_search_ends_where_fewer_than_two_clients_can_be_compared(tmp_path: Path) -> None:
    x, y = np.eye(40, dtype=np.float32), np.arange(40) % 2
    found = florets.discover([(x, y), (x, 0 * y)], results_dir=tmp_path)
    assert found.text.startswith("Not decided after 1 round: the search for groups waits until 2 clients have")
