"""Public functions with data in memory: what they accept, what they refuse shortly, and what comes back."""

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import florets
from florets.conf.problems import ConfigError
from florets.engines import engine

RNG = np.random.default_rng(0)
INPUTS = [RNG.normal(size=(60, 4)).astype(np.float32) for _ in range(4)]
CLIENTS = [(x, (x[:, 0] > 0).astype(int)) for x in INPUTS]
NAMED = dict(zip("abcd", CLIENTS, strict=True))
KEYS: dict[str, Any] = {"k": 2, "num_rounds": 2, "quiet": True, "pictures": False, "loss_matrix": False}


def clusters_of(clients: Any, clusters: Any, folder: Path) -> list[str]:
    written = florets.Federation(clients, clusters=clusters).write(folder)
    return [(written / name / "node.toml").read_text() for name in sorted(path.name for path in written.glob("*/"))]


@pytest.mark.parametrize(
    ("clients", "clusters"),
    [
        (NAMED, pd.Series([1, 0, 1, 0], index=list("dcba"))),
        (NAMED, pd.Series(["y", "x"] * 2, index=["b", "a", "d", "c"])),
        (CLIENTS, pd.Series([1, 0, 1, 0], index=[3, 2, 1, 0])),
        (CLIENTS, {1: 1, 0: 0, 3: 1, 2: 0}),
        (CLIENTS, np.array([0, 1, 0, 1])),
    ],
)
def test_true_clusters_go_by_the_clients_names(clients: Any, clusters: Any, tmp_path: Path) -> None:
    assert clusters_of(clients, clusters, tmp_path) == [f"true-cluster = {number}\n" for number in (0, 1, 0, 1)]


@pytest.mark.parametrize(
    ("clusters", "text"),
    [
        (pd.Series([0, 1, 0, 1]), "clusters: client 'a' has none; a mapping and the index of a Series hold"),
        (dict(zip("abcde", range(5), strict=True)), "clusters: there is no client 'e'"),
        (pd.Series([0, 1, 0, 1, 1], index=list("abcda")), "clusters: 'a' is given twice"),
        ([0, 1, None, np.nan], "clusters: 2 of 4 are missing, the first that of client 'c'; give all, or leave"),
        ("sector", "clusters: is a str; give one for each client, in their order or by name. A column"),
        (np.zeros((4, 2)), "clusters: that of client 'a' is neither a number nor a name"),
    ],
)
def test_clusters_that_name_no_client_or_are_missing_are_refused(clusters: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        florets.Federation(NAMED, clusters=clusters)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: florets.run(np.zeros((100, 100))), "clients: is one ndarray"),
        (lambda: florets.run(["quickstart", "own_data"]), "experiment: is a list of names; give one"),
        (lambda: florets.run(experiment=CLIENTS), "experiment: a ndarray of shape (60, 4) is no value"),
        (lambda: florets.run(k=np.zeros(100_000)), "k: a ndarray of shape (100000,) is no value"),
        (lambda: florets.run(k=[0] * 100_000), "k: a list of 100000 entries is no value"),
        (lambda: florets.run(k=list(range(300))), ", 24, 25, 26, 2 ...: must be an integer"),
        (lambda: florets.run(regression=True), "regression: describes clients=, and none are given"),
        (lambda: florets.run(clients=[pd.DataFrame({"a": [1]})] * 2, taget="a"), "Did you mean target?"),
        (lambda: florets.sweep(CLIENTS, strategy=[]), "strategy: is an empty list; give at least one value"),
        (lambda: florets.run(CLIENTS, tracker=Exception.with_traceback.__class__), "is a class that needs arguments"),
        (lambda: florets.run([(np.ma.masked_less(x, 0), y) for x, y in CLIENTS]), "is a masked array, whose mask"),
        (lambda: florets.extend(CLIENTS, "here"), "run: is a list; give a finished run or its folder"),  # type: ignore[arg-type]
    ],
)
def test_what_is_given_in_a_wrong_place_is_refused_in_a_short_text(call: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        call()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("change", ["client", "file", "more", "manifest"])
def test_a_folder_in_which_something_has_changed_is_written_anew(change: str, tmp_path: Path) -> None:
    federation = florets.Federation(CLIENTS)
    folder = federation.write(tmp_path)
    whole = (folder / "1" / "data.npz").read_bytes()
    if change == "client":
        shutil.rmtree(folder / "1")
    elif change == "file":
        (folder / "1" / "data.npz").write_bytes(whole[:100])
    elif change == "more":
        shutil.copytree(folder / "1", folder / "4")
    else:
        (folder / "federation.json").unlink()
    assert federation.write(tmp_path) == folder
    assert (folder / "1" / "data.npz").read_bytes() == whole
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2", "3", "federation.json"]
    assert list(tmp_path.glob("federations/.*")) == []


@pytest.mark.parametrize(
    ("pair", "is_table"), [((True, False), True), (("1", "0"), False), (("1", "0"), True), ((" M", "F "), True)]
)
def test_classes_come_back_as_they_were_given(pair: Any, is_table: bool, tmp_path: Path) -> None:
    targets = [np.where(x[:, 0] > 0, *pair) for x in INPUTS]
    clients: list[Any] = list(zip(INPUTS, targets, strict=True))
    if is_table:
        clients = [pd.DataFrame(x, columns=list("uvwx")).assign(y=y) for x, y in clients]
    given = {"target": "y"} if is_table else {}
    keys = {**KEYS, "strategy": "local", "train": {"local_epochs": 10, "learning_rate": 0.5}}
    run = florets.run(clients, results_dir=tmp_path, **given, **keys)
    found = run.predict(clients[0] if is_table else INPUTS[0], client=0).labels
    assert (found == targets[0]).mean() > 0.9


def test_a_torch_data_set_is_predicted_and_assigned_and_a_run_goes_on_with_data_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = florets.run(CLIENTS, checkpoint_every=1, regression=False, **KEYS)
    x, y = CLIENTS[0]
    both = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    for data in (both, TensorDataset(torch.from_numpy(x))):
        np.testing.assert_array_equal(run.predict(data, model=0).labels, run.predict(x, model=0).labels)
    np.testing.assert_array_equal(run.assign(both).losses, run.assign(x, y).losses)
    with pytest.raises(ConfigError, match="the label of sample 4 is none of the run's 2 classes"):
        run.assign(x, np.where(np.arange(60) == 4, 9, 0))
    # Of a new client alone, whose labels are the run's.
    extended = florets.extend(run, clients=[*CLIENTS, CLIENTS[0]], num_rounds=1)
    assert (len(extended.clients), extended.summary.rounds) == (5, 3)
    assert extended.config["task"]["data_options"] == run.config["task"]["data_options"]
    with pytest.raises(ConfigError, match="clients: 0: its targets are not integers, but those of the run are"):
        florets.extend(run, clients=[(x, np.where(y, "a", "b")) for x, y in CLIENTS])
    with pytest.raises(ConfigError, match=r"no_dir/x: there is no folder no_dir; make it"):
        run.embedding().plot().save("no_dir/x")
    for name, read in {
        "rounds.jsonl": lambda: run.rounds,
        "clients.csv": lambda: run.clients,
        "embeddings.npz": lambda: run.embedding(),
    }.items():
        (run.folder / name).write_bytes((run.folder / name).read_bytes()[:20] + b'\n"\x01,,,,,,\n')
        with pytest.raises(ConfigError, match=re.escape(f"{name}: is damaged")):
            read()


def test_one_run_at_a_time_in_a_process(tmp_path: Path) -> None:
    found: list[ConfigError] = []

    def second() -> None:
        try:
            florets.run(CLIENTS, results_dir=tmp_path, **KEYS)
        except ConfigError as error:
            found.append(error)

    with engine._running:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "a run is in progress in another thread of this process" in str(found[0])
    assert florets.run(CLIENTS, results_dir=tmp_path, **KEYS).summary.rounds == 2


def test_an_interrupted_sweep_is_raised_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {**KEYS, "strategy": ["fedavg", "local"], "checkpoint_every": 1, "results_dir": tmp_path}
    ran: list[str] = []

    class Stop:
        def on_start(self, *_: Any) -> None: ...

        def on_round(self, *_: Any) -> None:
            raise KeyboardInterrupt

        def on_end(self, *_: Any) -> None: ...

    def run(config: Any, overrides: Any, trackers: Any = ()) -> Any:
        ran.append(config.strategy.name)
        return whole(config, overrides, [Stop()] if len(ran) == 2 else trackers)

    whole = engine.run
    monkeypatch.setattr(engine, "run", run)
    with pytest.raises(KeyboardInterrupt, match="go on with the same call and keep=True") as caught:
        florets.sweep(CLIENTS, **keys)
    assert not str(caught.value).startswith(";")
    (folder,) = (tmp_path / "sweeps").iterdir()
    assert list(florets.Sweep(folder).frame["error"].fillna("")) == ["", "interrupted"]
    assert florets.sweep(CLIENTS, keep=True, **keys).frame["error"].isna().all()
    assert ran == ["fedavg", "local"]
