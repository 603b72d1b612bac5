"""Clients whose data are in memory: what is accepted, refused, written, and what comes back."""

import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from torch.utils.data import IterableDataset, Subset, TensorDataset

import florets
from florets.api.federation import Federation
from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.task.data.own import own

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 4)).astype(np.float32), np.arange(20) % 2
OTHER = (RNG.normal(size=(12, 4)), np.arange(12) % 2)
FRAME = pd.DataFrame({"age": X[:, 0], "sex": ["m", "f"] * 10, "ill": ["no", "yes"] * 10, "school": list("bbaac") * 4})
CODED = [FRAME.assign(ill=pd.Categorical([1, 2] * 10)), FRAME.assign(ill=[1.5, 2] * 10)]


def read(folder: Path, name: str, **options: Any) -> Any:
    return own(folder / name, 0, 0, **options)


@pytest.mark.parametrize(
    "same",
    [
        (X.tolist(), Y.tolist()),
        (X.astype(np.float64), Y.astype(np.float64)),
        [torch.from_numpy(X), torch.from_numpy(Y)],
        (list(torch.from_numpy(X)), list(torch.from_numpy(Y))),
        (X, Y[:, np.newaxis]),
        {"train": (X, Y)},
        TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        Subset(TensorDataset(*(torch.from_numpy(np.concatenate([one, one])) for one in (X, Y))), range(20)),
        Subset([(torch.from_numpy(x), y) for x, y in zip(X, Y, strict=True)], range(20)),  # type: ignore[arg-type]
    ],
    ids=["lists", "doubles", "tensors", "list of tensors", "column", "train", "dataset", "subset", "samples"],
)
def test_equal_samples_in_any_form_are_equal_files_written_once(same: Any, tmp_path: Path) -> None:
    folder = Federation([(X, Y), OTHER]).write(tmp_path)
    times = [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))]
    assert Federation([same, OTHER]).write(tmp_path) == folder
    assert [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))] == times
    assert [path.name for path in (tmp_path / "federations").iterdir()] == [folder.name]
    with np.load(folder / "0" / "data.npz") as archive:
        assert archive["x"].tolist() == X.tolist()
        assert archive["y"].tolist() == Y.tolist()


def test_a_folder_that_lost_a_file_is_written_again(tmp_path: Path) -> None:
    folder = Federation([(X, Y), OTHER]).write(tmp_path)
    (folder / "1" / "data.npz").unlink()
    assert Federation([(X, Y), OTHER]).write(tmp_path) == folder
    assert (folder / "1" / "data.npz").stat().st_size


def test_train_and_test_stay_apart_and_pixels_are_bytes_with_channels_first(tmp_path: Path) -> None:
    image = RNG.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
    labels = np.array([0, 1] * 3)
    folder = Federation({"a": {"train": (image, labels), "test": (image[:2], labels[:2])}}).write(tmp_path)
    found = read(folder, "a")
    assert (found.x_train.shape, found.x_test.shape) == ((6, 3, 8, 9), (2, 3, 8, 9))
    np.testing.assert_array_equal(found.x_test, np.moveaxis(image[:2], 3, 1).astype(np.float32) / np.float32(255))


@pytest.mark.parametrize(
    ("targets", "settings"),
    [
        (([0, 1, 2], [2, 1, 0]), {}),
        (([1, 2, 10], [2, 1, 3]), {"task.data_options.classes": ["1", "2", "3", "10"]}),
        ((["no", "yes", "no"], ["maybe"] * 3), {"task.data_options.classes": ["maybe", "no", "yes"]}),
        (([0.5, 1.0, 2.0], [1, 2, 3]), {"task.data_options.regression": True, "task.loss": "squared_error"}),
    ],
)
def test_targets_are_agreed_over_all_clients(targets: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    federation = Federation([(X[:3], own_targets) for own_targets in targets])
    assert federation.settings == settings
    options = {name.rpartition(".")[2]: value for name, value in settings.items() if "data_options" in name}
    found = read(federation.write(tmp_path), "0", **options)
    names = options.get("classes")
    written = np.concatenate([found.y_train, found.y_test]).tolist()
    given = [str(value) if names else value for value in targets[0]]
    assert sorted([names[label] for label in written] if names else written) == sorted(given)


def test_columns_of_hugging_face_are_what_their_features_declare(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    label, row = datasets.ClassLabel(names=["no", "yes"]), datasets.Sequence(datasets.Value("float32"), length=4)

    def of(columns: dict[str, Any], **features: Any) -> Any:
        return datasets.Dataset.from_dict(columns, datasets.Features(features))

    wide = of({"x": X.tolist(), "y": Y.tolist()}, x=row, y=label)
    unsorted = of({"x": X.tolist(), "y": Y.tolist()}, x=row, y=datasets.ClassLabel(names=["zz", "bb", "aa"]))
    assert Federation([unsorted]).settings == {"task.data_options.classes": ["zz", "bb", "aa"]}
    named = Federation([datasets.DatasetDict(train=wide), (X, np.array(["no", "yes"])[Y])])
    assert named.settings == {"task.data_options.classes": ["no", "yes"]}
    first, second = (sorted((named.write(tmp_path) / name).glob("*"))[0].read_bytes() for name in "01")
    assert first == second
    numbers = of({"x": X.tolist(), "y": Y.tolist()}, x=row, y=datasets.Value("int64"))
    assert Federation([numbers, OTHER], target="y").settings == {}
    flat = of({"age": X[:, 0].tolist(), "ill": Y.tolist()}, age=datasets.Value("float32"), ill=label)
    federation = Federation([flat, FRAME[["age", "ill"]]], target="ill")
    tables = [pd.read_csv(federation.write(tmp_path) / name / "data.csv") for name in "01"]
    pd.testing.assert_frame_equal(*tables)
    gaps = of({"x": X.tolist(), "y": [-1, *Y[1:].tolist()]}, x=row, y=label)
    two = of(
        {"x": X.tolist(), "age": X[:, 0].tolist(), "y": Y.tolist()}, x=row, age=datasets.Value("float32"), y=label
    )
    for wrong, text in {
        gaps: "1 target is missing",
        two: r"keep the one that models read: .select_columns\(\['x', 'y'\]\)",
        wide.select([]): "is empty",
        flat: "is a table: name its target column",
    }.items():
        with pytest.raises(ConfigError, match=text):
            Federation([wrong, wide])


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield X[0], 0


GAPS = X.copy()
GAPS[3, 1], GAPS[5, 0] = np.nan, np.inf
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "one client": ({"train": (X, Y)}, {}, "clients: these are the parts of one client; give a list"),
    "stream": ([Endless()], {}, "client 0 is a torch IterableDataset; give a map-style Dataset"),
    "lengths": ([OTHER, (X, Y[:9])], {}, "client 1: x has 20 samples and y 9; give one target for each sample"),
    "sparse": ([(csr_array(X), Y)], {}, "client 0: x is a sparse matrix; pass x.toarray()."),
    "frame": ([FRAME], {}, "client 0 is a table: name its target column, target=<column>."),
    "fractions": (
        CODED,
        {"target": "ill"},
        "client 1: column 'ill' has fractions, and other clients' frames declare",
    ),
    "inputs": (CODED, {"target": "sex"}, "client 1: column 'ill' has fractions, and other clients' frames declare"),
    "one sample": ([(X, Y), (X[:1], Y[:1])], {}, "client 1 has only one sample; give at least 2"),
    "empty": ([{"train": (X, Y), "test": (X[:0], Y[:0])}], {}, "client 0: its test part is empty; give samples"),
    "no target": ([(X, [None, *"ab" * 9, "b"])], {}, "client 0: 1 target is missing (sample 0); leave out samples"),
    "targets": (
        [(X, [np.nan, 0.5, np.inf, *Y[3:]])],
        {},
        "2 targets are missing or infinite (the first in sample 0)",
    ),
    "classes": ([(X, Y)], {"classes": ["a", "b"]}, "client 0: its targets 0 and 1 are not among classes."),
    "many": (
        [(X, np.arange(20))],
        {"classes": ["0"]},
        "its targets 1, 2, 3, 4, 5 and 14 more are not among classes.",
    ),
    "mixed": ([(X, Y), FRAME], {"target": "ill"}, "client 0 has arrays and the others have tables; give all"),
    "gaps": ({"a": (GAPS, Y)}, {}, "client a: 2 of the inputs are not finite numbers, the first in sample 3; fill"),
    "shapes": ([(X, Y), (X[:, :3], Y)], {}, "the inputs of 1 have shape (3,), and those of 0 (4,); bring them into"),
    "kinds": (
        [(X, Y), (X, ["a", "b"] * 10)],
        {},
        "the targets of '1' are names, and those of '0' integers; give all",
    ),
    "one class": ([(X, Y * 0)] * 2, {}, "clients: the targets of all clients are of one class"),
    "no column": ([FRAME], {"target": "il"}, "client 0 has no column 'il', the target; its columns are age, sex"),
    "whose": (
        FRAME,
        {"target": "ill"},
        "clients: one data frame or data set; name the column that says which client a record belongs to",
    ),
    "parts": ([{"train": OTHER, "tset": OTHER}], {}, "has the parts 'train', 'tset'; give 'train' and 'test'"),
    "forms": (
        [{"train": FRAME, "test": OTHER}],
        {"target": "ill"},
        "one of train and test is a table, the other one",
    ),
    "ragged": (
        [([[1, 2], [3]], [0, 1])],
        {},
        "client 0: the rows have different lengths; bring them into one shape.",
    ),
    "flat": ([(X[:, 0], Y)], {}, "x has shape (20,); give a row of numbers for each sample: of one number x.reshape"),
    "cells": ([FRAME.assign(sex=[[1]] * 20)], {"target": "ill"}, "column 'sex' holds list; give numbers or words"),
    "twice": ([FRAME.rename(columns={"sex": "age "})], {"target": "ill"}, "client 0 has several columns 'age'; give"),
    "name": ({"=1": (X, Y)}, {}, "clients: the name '=1' must not begin with one of"),
}


@pytest.mark.parametrize(("clients", "given", "text"), REFUSED.values(), ids=REFUSED)
def test_data_that_cannot_be_used_are_refused_by_client_and_remedy(
    clients: Any, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        Federation(clients, **given)


def coded(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"age": rng.normal(50, 9, 80).round(1), "ward": pd.Categorical(rng.choice([10, 20, 30], 80))}
    )
    frame["zip "] = rng.choice(["01067", "10115"], 80)
    frame["plan"] = rng.choice(["1E2", "2E3"], 80)
    frame["weight"] = [f"{value:.1f}" for value in rng.normal(70, 9, 80)]
    frame["label"] = [f"{code:02d}" for code in rng.integers(0, 14, 80)]
    frame["group"] = pd.Categorical(rng.integers(1, 15, 80), categories=range(1, 20), ordered=True)
    return frame


@pytest.mark.parametrize("target", ["label ", "group"])
def test_the_types_that_a_frame_declares_hold(target: str, tmp_path: Path) -> None:
    frames = [coded(seed).drop(columns={"label ": "group", "group": "label"}[target]) for seed in range(3)]
    # Where one client's frame declares it, the others' integers are codes as well.
    frames[1]["ward"] = frames[1]["ward"].astype(int)
    clients = florets.Federation(frames, target=target)
    options = {"results_dir": str(tmp_path), "task.table.drop": ["plan"]}
    found = florets.check(clients, **options)
    assert found.text.count("classes 0") + found.text.count("classes 1") == 1, found.text
    assert "inputs: age, weight, ward (categories), zip (categories); 6 numbers" in found.text


def test_a_frame_is_dealt_out_by_its_owner_and_kept_as_raw_records(tmp_path: Path) -> None:
    frame = FRAME.assign(age=[None, *FRAME["age"][1:]])
    federation = Federation(frame, owner="school", target="ill", clusters={"a": "x", "b": "y", "c": "x"})
    folder = federation.write(tmp_path)
    assert federation.names == ("a", "b", "c")
    assert federation.settings == {"task.table.target": "ill"}
    back = pd.read_csv(folder / "b" / "data.csv")
    assert list(back.columns) == ["age", "sex", "ill"]
    np.testing.assert_array_equal(back["age"].astype(np.float32), frame[frame["school"] == "b"]["age"])
    assert (folder / "c" / "node.toml").read_text().startswith("true-cluster = 0\n")


def test_a_name_that_is_no_folder_stands_in_the_nodes_file(tmp_path: Path) -> None:
    # Bad characters, names that differ in case alone, a device of Windows, one that a generated name could meet.
    names = ["St. Mary/2", "A", "a", "con", "client-0", "b ", "north 1"]
    folder = Federation(dict.fromkeys(names, (X, Y))).write(tmp_path)
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == [
        *(f"client-{place}" for place in range(6)),
        "north 1",
    ]
    assert (folder / "client-0" / "node.toml").read_text() == 'client-id = "St. Mary/2"\n'


def clients(count: int = 6, size: int = 80) -> list[tuple[Any, Any]]:
    """Clients of two groups, whose labels follow from the first input or from its negative."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(size, 6)).astype(np.float32) for _ in range(count)]
    return [(x, np.where((x[:, 0] > 0) == bool(number % 2), "a", "b")) for number, x in enumerate(inputs)]


KEYS: dict[str, Any] = {"k": 2, "num_rounds": 3, "quiet": True, "pictures": False, "loss_matrix": False}


def test_a_run_from_memory_equals_that_of_a_folder_and_is_used_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = florets.run(clients=clients(), **KEYS)
    for place, (x, y) in enumerate(clients()):
        (tmp_path / "data" / str(place)).mkdir(parents=True)
        np.savez(tmp_path / "data" / str(place) / "data.npz", x=x, y=y)
    typed = [f"{key}={value}" for key, value in KEYS.items()]
    assert main(["experiment=own_data", "data_dir=data", "task.data_options.classes=[a,b]", *typed]) == 0
    (folder,) = {path.parent for path in tmp_path.rglob("models.safetensors")} - {run.folder}
    assert (folder / "models.safetensors").read_bytes() == (run.folder / "models.safetensors").read_bytes()
    x, y = clients(7)[-1]
    np.savez(tmp_path / "new.npz", x=x, y=y)
    found = run.predict(x, client=2)
    assert main(["predict", f"run={run.folder}", "data=new.npz", "client=2"]) == 0
    assert list(pd.read_csv("predictions.csv")["prediction"]) == found.labels.tolist()
    assert found.labels.dtype.kind == "U"
    np.testing.assert_array_equal(np.asarray(found), run.predict("new.npz", model=run.assign(x, y).model).labels)
    # Of its own record alone.
    assert found.probabilities is not None
    alone = run.predict(torch.from_numpy(x[5:6]), client="2").probabilities
    assert alone is not None
    assert alone[0].tobytes() == found.probabilities[5].tobytes()
    assert list(found.frame().columns) == ["prediction", "probability", "p(a)", "p(b)"]
    assigned = run.assign(x, y)
    capsys.readouterr()
    assert main(["assign", f"run={run.folder}", "data=new.npz"]) == 0
    said = capsys.readouterr().out
    assert f"Model {assigned.model} fits best: {assigned.why}." in said
    assert f"On 80 samples: accuracy {assigned.accuracy:.1%}, loss {assigned.loss:.4g}" in said
    with pytest.raises(ConfigError, match=r"x: the inputs have shape \(5,\), but the run's models take \(6,\)"):
        run.predict(x[:, :5], model=0)
    with pytest.raises(ConfigError, match="y: a data frame, data set, file or folder has the targets in it"):
        run.assign("new.npz", y)


def test_raw_records_are_predicted_and_assigned_as_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, 240).round(1),
            "sex": rng.choice(["m", "f"], 240),
            "site": np.repeat(["north", "south", "west"], 80),
        }
    )
    frame["cost"] = 3 * frame["age"] + 20 * (frame["sex"] == "m") + rng.normal(size=240)
    run = florets.run(clients=frame, owner="site", target="cost", **KEYS)
    new = frame.drop(columns=["site"])[:20]
    found = run.predict(new.drop(columns=["cost"]), client="north")
    new.to_csv("new.csv", index=False)
    np.testing.assert_array_equal(found.values, run.predict(Path("new.csv"), client="north").values)
    assert found.target == "cost"
    assert found.values.shape == (20,)
    assigned = run.assign(new)
    assert assigned.rmse == pytest.approx(
        np.sqrt(np.mean((run.predict(new, model=assigned.model).values - new["cost"]) ** 2)), rel=1e-3
    )
    with pytest.raises(ConfigError, match="x: the run was on tables; give a data frame of raw records"):
        run.predict(new[["age"]].to_numpy(), model=0)


@pytest.mark.slow
def test_groups_have_the_clients_order_and_the_commands_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {f"<{name}>": own for name, own in zip("hgfedcba", clients(8), strict=True)}
    found = florets.discover(named, quiet=True)
    assert list(found.assignment) == list(named)
    assert found.labels.tolist() in ([0, 1] * 4, [1, 0] * 4)
    assert (found.k, found.run.summary.rounds) == (2, 1)
    assert found.p_value is not None
    assert found.p_value < 0.005
    assert f"group {found.labels[0]}: <h>, <f>, <d> and <b>" in found.text
    assert found.evidence["sharp"]
    figure = found.plot()
    assert sorted(label.get_text() for label in figure.axes[1].get_yticklabels()) == sorted(named)
    data_dir = next(path for path in (tmp_path / "results" / "federations").iterdir())
    capsys.readouterr()
    keys = [f"data_dir={data_dir}", "experiment=own_data", "task.data_options.classes=[a,b]", "quiet=true"]
    assert main(["discover", *keys]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"Results: {found.run.folder}"
    assert said[0] == found.text.splitlines()[0]
    assert main(["discover", "strategy=clove"]) == 2


@pytest.mark.parametrize(
    ("first", "keys", "text"),
    [
        (None, {"data_dir": "x"}, "data_dir=x: clients= are the data already; leave one of them out."),
        (None, {"clients": [OTHER]}, "clients: only '0' is given; give at least 2."),
    ],
)
def test_data_are_said_once(first: str | None, keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        florets.run(first, **{"clients": [OTHER, OTHER], **keys})


INPUTS = [RNG.normal(size=(60, 4)).astype(np.float32) for _ in range(4)]
CLIENTS = [(x, (x[:, 0] > 0).astype(int)) for x in INPUTS]
NAMED = dict(zip("abcd", CLIENTS, strict=True))
SHORT: dict[str, Any] = {"k": 2, "num_rounds": 2, "quiet": True, "pictures": False, "loss_matrix": False}


def clusters_of(clients: Any, clusters: Any, folder: Path) -> list[str]:
    written = florets.Federation(clients, clusters=clusters).write(folder)
    return [(written / name / "node.toml").read_text() for name in sorted(path.name for path in written.glob("*/"))]


@pytest.mark.parametrize(
    ("clients", "clusters"),
    [
        (NAMED, pd.Series([1, 0, 1, 0], index=list("dcba"))),
        (CLIENTS, {1: 1, 0: 0, 3: 1, 2: 0}),
        (CLIENTS, np.array([0, 1, 0, 1])),
    ],
)
def test_true_clusters_go_by_the_clients_names(clients: Any, clusters: Any, tmp_path: Path) -> None:
    assert clusters_of(clients, clusters, tmp_path) == [f"true-cluster = {number}\n" for number in (0, 1, 0, 1)]


@pytest.mark.parametrize(
    ("clusters", "text"),
    [
        (dict(zip("abcde", range(5), strict=True)), "clusters: give one for each client by its name (a, b, c, d)"),
        ([0, 1, None, np.nan], "clusters: that of client 'c' is neither a number nor a name; give all, or none"),
    ],
)
def test_clusters_that_name_no_client_or_are_missing_are_refused(clusters: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        florets.Federation(NAMED, clusters=clusters)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: florets.run(np.zeros((100, 100))), "clients: is one ndarray"),
        (lambda: florets.run(regression=True), "regression: describes clients=, and none are given"),
        (lambda: florets.run([(np.ma.masked_less(x, 0), y) for x, y in CLIENTS]), "is a masked array, whose mask"),
    ],
)
def test_what_is_given_in_a_wrong_place_is_refused_in_a_short_text(call: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        call()
    assert len(str(caught.value)) < 1000
    # No traceback of an error that it restates comes before its own.
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


@pytest.mark.parametrize(("pair", "is_table"), [((True, False), True), ((1, 0), False)])
def test_classes_come_back_as_they_were_given(pair: Any, is_table: bool, tmp_path: Path) -> None:
    targets = [np.where(x[:, 0] > 0, *pair) for x in INPUTS]
    clients: list[Any] = list(zip(INPUTS, targets, strict=True))
    if is_table:
        clients = [pd.DataFrame(x, columns=list("uvwx")).assign(y=y) for x, y in clients]
    given = {"target": "y"} if is_table else {}
    keys = {**SHORT, "strategy": "local", "train": {"local_epochs": 10, "learning_rate": 0.5}}
    run = florets.run(clients, results_dir=tmp_path, **given, **keys)
    found = run.predict(clients[0] if is_table else INPUTS[0], client=0).labels
    assert (found == targets[0]).mean() > 0.9
