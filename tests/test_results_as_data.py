"""A run's results as data: what each client did in each round, the vectors that rounds compared, and their frames."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from florets.api.run import Run
from florets.conf.problems import ConfigError
from florets.reports.embedding import embedding
from florets.server_app.recorder import Recorder
from florets.strategies.base.outliers import OUTLIER
from florets.strategies.base.report import ClientRound, Compared, RoundReport, sketched
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.tested import Evaluation
from florets.task.wire import kinds
from tests.fakes import FakeClients, model, models
from tests.results_examples import CLIENTS, FOUND, TRUTH, evaluations, report

TRAINED = ClientRound(3000, 1000, 0.25, "ok", "", 0.5, 90)
REJECTED = ClientRound(3000, 1000, 0.125, "invalid", "rejected as an outlier, of course")
VECTORS = np.array([[0.0, 1.0], [0.0, 1.5], [3.0, 0.0], [4.0, 0.0]], dtype=np.float32)
COMPARED = Compared("losses", tuple(TRUTH), VECTORS)
TESTED = {"00": Evaluation(20, 0.25, 0.5), "03": Evaluation(10, math.nan, 0.0)}
WITH_VALIDATION = {"00": Evaluation(20, 0.25, 0.5, Evaluation(5, 0.75, 0.25), scores={"auc": 0.875})}
HEAD = (
    "round,client,cluster,true_cluster,sampled,reply,rejected,train_loss,samples,halvings,seconds,bytes_down,bytes_up,"
    "kept,test_examples,test_loss,test_accuracy"
)


def recorder(folder: Path, done_rounds: int | None = None) -> Recorder:
    return Recorder(folder, "k: 2\n", "tiny", "clove", 0, 3, quiet=True, done_rounds=done_rounds)


def four_rounds() -> list[RoundReport]:
    """In round 2 client 01 is rejected, 02 and 03 are not sampled; in round 3 nothing happens to 01 and 03."""
    nobody: dict[str, Evaluation] = {}
    return [
        report(1, participants=(), assignment={"00": 1}, evaluations=nobody, clients={"00": TRAINED}),
        report(
            2,
            participants=("00", "01"),
            evaluations=TESTED,
            clients={"00": TRAINED, "01": REJECTED},
            compared=COMPARED,
        ),
        report(3, participants=("02",), evaluations=nobody, clients={"02": TRAINED}),
        report(4, participants=("00",), evaluations=WITH_VALIDATION, clients={"00": TRAINED}, compared=COMPARED),
    ]


def written(folder: Path, reports: list[RoundReport], done_rounds: int | None = None, end: bool = True) -> Path:
    with recorder(folder, done_rounds) as run:
        run.clients(CLIENTS)
        for one in reports:
            run.round(one)
        if end:
            run.finish({"0/w": np.zeros(2, dtype=np.float32)}, evaluations(), FOUND, pictures=False)
    return folder


def test_a_row_has_what_a_client_did_and_none_is_written_where_nothing_happened(tmp_path: Path) -> None:
    written(tmp_path / "run", four_rounds()[:3])
    assert (tmp_path / "run" / "clients_over_rounds.csv").read_text().splitlines() == [
        HEAD,
        "1,00,1,0,false,ok,,0.5,90,,0.25,3000,1000,,,,",
        "1,01,,0,false,,,,,,,,,,,,",
        "1,02,,1,false,,,,,,,,,,,,",
        "1,03,,1,false,,,,,,,,,,,,",
        "2,00,1,0,true,ok,,0.5,90,,0.25,3000,1000,,20,0.25,0.5",
        '2,01,1,0,true,invalid,"rejected as an outlier, of course",,,,0.125,3000,1000,,,,',
        "2,02,0,1,false,,,,,,,,,,,,",
        "2,03,0,1,false,,,,,,,,,,10,nan,0.0",
        "3,02,0,1,true,ok,,0.5,90,,0.25,3000,1000,,,,",
    ]


@pytest.mark.parametrize("done", [0, 2, 4])
def test_a_run_that_goes_on_has_the_files_of_one_that_was_never_killed(tmp_path: Path, done: int) -> None:
    whole = written(tmp_path / "whole", four_rounds())
    # Killed after the third round's rows and before its line; or one that had come to its end.
    folder = written(tmp_path / "killed", four_rounds()[:3] if done < 4 else four_rounds(), end=done == 4)
    written(folder, four_rounds()[done:], done)
    names = ["clients_over_rounds.csv", "embeddings/2.npz", "embeddings/4.npz"]
    for name in names:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in whole.iterdir())


def test_the_frame_has_a_row_for_each_round_and_client(tmp_path: Path) -> None:
    run = Run(written(tmp_path / "run", four_rounds()))
    found = run.clients_over_rounds
    assert list(zip(found["round"], found["client"], strict=True)) == [(r, c) for r in (1, 2, 3, 4) for c in TRUTH]
    still = found[(found["round"] == 3) & (found["client"] == "01")].iloc[0]
    assert (still["cluster"], still["true_cluster"], still["sampled"], still["bytes_down"]) == (1, 0, False, 0)
    assert still[["reply", "rejected", "train_loss", "samples", "test_loss"]].isna().all()
    assert found["sampled"].sum() == 4
    assert run.rounds.columns[0] == "round"
    assert found["rejected"].dropna().tolist() == ["rejected as an outlier, of course"]
    assert found["test_examples"].dropna().tolist() == [20, 10, 20]
    assert run.assignments.loc[2].tolist() == [1, 1, 0, 0]
    assert run.assignments.loc[1].isna().tolist() == [False, True, True, True]
    assert run.clients["found_cluster"].tolist() == [1, 1, 0, 0]


def test_vectors_are_read_by_round_with_groups_and_true_clusters(tmp_path: Path) -> None:
    run = Run(written(tmp_path / "run", four_rounds()))
    found = run.embedding(2)
    assert (found.round, found.kind, found.clients.tolist()) == (2, "losses", list(TRUTH))
    np.testing.assert_array_equal(found.vectors, VECTORS)
    assert (found.labels.tolist(), found.true_labels.tolist()) == ([1, 1, 0, 0], [0, 0, 1, 1])
    # A stray file is no round.
    (run.folder / "embeddings" / "9_old.npz").write_bytes(b"")
    assert run.embedding().round == 4
    with pytest.raises(ConfigError, match=r"round=3: no clients were compared in this round; the run has 2, 4\."):
        run.embedding(3)


def test_a_damaged_file_of_a_run_is_named(tmp_path: Path) -> None:
    run = Run(written(tmp_path / "run", four_rounds()))
    for name, read in {
        "rounds.jsonl": lambda: run.rounds,
        "clients.csv": lambda: run.clients,
        "embeddings/4.npz": lambda: run.embedding(),
    }.items():
        (run.folder / name).write_bytes((run.folder / name).read_bytes()[:20] + b'\n"\x01,,,,,,\n')
        with pytest.raises(ConfigError, match=f"{name}: is damaged"):
            read()
    (run.folder / "config.yaml").write_text("k: [")
    with pytest.raises(ConfigError, match=r"(?s)config.yaml: cannot be read .*; run the experiment again\."):
        run.config  # noqa: B018  # it reads the file


def test_clients_are_drawn_by_group_and_true_cluster(tmp_path: Path) -> None:
    found = embedding(written(tmp_path / "run", four_rounds()))
    figure = found.plot()
    (axes,) = figure.axes
    assert {text.get_text() for text in axes.texts} == {"group 0", "group 1"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0", "1"]
    assert axes.get_title(loc="left") == "Round 4: losses of 4 clients"
    assert figure._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]
    # By hand: the vectors lie nearly on a line, along which the groups are apart.
    places = found.placed()[0][:, 0]
    assert np.abs(places[:2] - places[2:]).min() > np.abs(np.diff(places)[[0, 2]]).max()


def test_short_vectors_stay_and_long_ones_keep_their_products_on_average() -> None:
    short = sketched(VECTORS, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(short, VECTORS)
    assert sketched([np.array([math.inf, math.nan])], 2, np.random.default_rng(0)).tolist() == [
        [float(np.finfo(np.float32).max), 0.0]
    ]
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((3, 1000))
    drawn = [sketched(vectors, 64, np.random.default_rng(seed)) for seed in range(200)]
    assert drawn[0].shape == (3, 64)
    found = np.mean([one @ one.T for one in drawn], axis=0)
    # The spread of a mean of 200 is about 1 / sqrt(64 * 200) of the vectors' lengths.
    np.testing.assert_allclose(found, vectors @ vectors.T, atol=1000 * 5 / math.sqrt(64 * 200))


def run(strategy: Any, clients: FakeClients, *thetas: float, num_rounds: int = 2) -> list[RoundReport]:
    seen: list[RoundReport] = []
    strategy.start(clients.grid(), models(*thetas), num_rounds=num_rounds, on_round=lambda one, _: seen.append(one))
    return seen


def far_away(content: RecordDict) -> RecordDict:
    content[kinds.ARRAYS] = type(content[kinds.ARRAYS])(model(1e9))
    return content


def fails(content: RecordDict) -> RecordDict:
    raise RuntimeError("no such patient")


def of_nobody(content: RecordDict) -> RecordDict:
    content[kinds.METRICS][kinds.NUM_EXAMPLES] = -1  # type: ignore[index]
    return content


def test_costs_of_a_round_are_those_of_its_clients() -> None:
    faults = {(kinds.TRAIN, 1, 3): far_away, (kinds.TRAIN, 1, 4): fails, (kinds.TRAIN, 1, 5): of_nobody}
    clients = FakeClients([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], examples=[10, 11, 12, 13, 14, 15, 16], faults=faults)
    first, second = run(FedAvg(), clients, 1.0)
    for one in (first, second):
        assert sum(part.bytes_down for part in one.clients.values()) == one.bytes_down
        assert sum(part.bytes_up for part in one.clients.values()) == one.bytes_up
        assert sum(part.seconds for part in one.clients.values()) == pytest.approx(one.work.seconds)
    assert [part.reply for _, part in sorted(first.clients.items())] == ["ok"] * 3 + [
        "invalid",
        "error",
        "invalid",
        "ok",
    ]
    # Before training, theta is 1: the loss of target t is (1 - t)^2.
    assert [part.train_loss for _, part in sorted(first.clients.items())] == [1, 0, 1, None, None, None, 25]
    assert [part.samples for _, part in sorted(first.clients.items())] == [10, 11, 12, None, None, None, 16]
    reasons = {key: part.rejected for key, part in first.clients.items() if part.rejected}
    assert reasons == {"3": OUTLIER, "5": f"{kinds.NUM_EXAMPLES} is -1, not an integer from 1 to 1000000000"}
    assert first.clients["4"].bytes_up == 0
    assert {part.reply for part in second.clients.values()} == {"ok"}
