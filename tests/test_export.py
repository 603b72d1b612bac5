"""`florets export`: models that predict the same without Florets, raw table records included."""

import csv
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray

import florets
from florets.api.export import Exported, _write_models, export
from florets.commands.main import main
from florets.conf.problems import ConfigError
from florets.server_app.run_models import RunModels, load_run
from florets.task.data.new_data import read_new_table
from florets.task.data.tables import table_text
from florets.task.data.tables.declaration import MISSING, Declaration
from florets.task.data.tables.preprocessing import CategoricalInput, NumericInput, Preprocessing
from florets.task.new_client import loaded_module, predict
from florets.task.task import Task, TaskSpec

WITHOUT = ("florets", "flwr", "numpy", "pandas", "sklearn", "scipy", "safetensors")
DRIVER = """
import contextlib, json, runpy, sys
folder, without, calls = json.loads(sys.argv[1])
for name in without:
    sys.modules[name] = None
sys.path.insert(0, folder)
for which, data, target in calls:
    sys.argv = ["predict.py", which, data]
    with open(target, "w") as file, contextlib.redirect_stdout(file):
        runpy.run_path(folder + "/predict.py", run_name="__main__")
"""


def elsewhere(folder: Path, *calls: tuple[str, Path, Path]) -> None:
    """Run an export's predict.py in a process that can import nothing but torch and the standard library."""
    given = json.dumps([str(folder), WITHOUT, [[which, str(data), str(target)] for which, data, target in calls]])
    command = [sys.executable, "-E", "-c", DRIVER, given]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def records(seed: int) -> str:
    """Return a table: a gap in every tenth record, and two words that go with the target."""
    rng, lines = np.random.default_rng(seed), ["patient,age,chol,sex,sick"]
    for number in range(40):
        age, chol, woman = rng.normal(60, 10), rng.normal(200, 40), rng.random() < 0.5
        shown = "" if number % 10 == 3 else f"{chol:.1f}"
        sick = "yes" if age + chol / 4 + 10 * woman > 115 else "no"
        lines.append(f"p{seed}-{number},{age:.1f},{shown},{'F' if woman else 'M'},{sick}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run on tables whose two clients have a model of their own beside the common one."""
    root = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate(("model_0", "north|<b>")):
        (root / "data" / name).mkdir(parents=True)
        (root / "data" / name / "data.csv").write_text(records(seed))
    given = [
        "experiment=own_data", "strategy=ifca", "k=2", "personal=intercept", "min_clients=2", "num_rounds=2",
        "quiet=true", "pictures=false", "task.model=mlp", "target=sick", "task.table.id=[patient]",
        f"data_dir={root / 'data'}", f"results_dir={root / 'results'}",
    ]  # fmt: skip
    assert main(given) == 0
    (folder,) = (path.parent for path in (root / "results").rglob("preprocessing.json"))
    return folder


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("exported") / "new" / "models"
    assert main(["export", f"run={run}", f"to={target}"]) == 0
    return target


@pytest.mark.slow
def test_raw_records_are_predicted_without_florets_as_with_it(run: Path, exported: Path, tmp_path: Path) -> None:
    # A gap, a word that nobody had, and a record with both.
    raw = "patient;sex;age;chol\nn1;F;62,5;210,25\nn2;other;50;\n=n3;?;;\n"
    (tmp_path / "new.csv").write_text(raw)
    site = [
        {"patient": "n1", "sex": "F", "age": 62.5, "chol": 210.25},
        {"patient": "n2", "sex": "other", "age": 50, "chol": None},
        {"patient": "=n3", "age": "NA"},
    ]
    (tmp_path / "site.json").write_text(json.dumps(site))
    own = "north|<b>"
    calls = [(own, "new.csv"), (own, "site.json"), ("model_0.pt2", "new.csv"), ("model_1.pt2", "new.csv")]
    targets = [tmp_path / f"{number}.out" for number in range(4)]
    elsewhere(exported, *((which, tmp_path / data, to) for (which, data), to in zip(calls, targets, strict=True)))
    loaded = load_run(run)
    assert loaded.preprocessing is not None
    table = read_new_table(tmp_path / "new.csv", Declaration(), loaded.preprocessing, False)
    for state, target in zip((loaded.own[own], loaded.own[own], *loaded.models), targets, strict=True):
        found = list(csv.DictReader(target.read_text().splitlines()))
        shares = [[float(row["p(no)"]), float(row["p(yes)"])] for row in found]
        np.testing.assert_allclose(shares, predict(loaded.task, state, table.x).probabilities, rtol=0, atol=1e-6)
        assert [row["patient"] for row in found] == ["n1", "n2", "'=n3"]
        assert [(row["missing"], row["unknown"]) for row in found] == [("0", "0"), ("1", "1"), ("3", "0")]
        assert all(float(row[f"p({row['prediction']})"]) >= 0.5 for row in found)


def test_an_export_is_whole_and_names_its_sites(run: Path, exported: Path) -> None:
    about = json.loads((exported / "export.json").read_text())
    assert about["models"] == ["model_0", "model_1", "client_0", "client_1"]
    assert about["sites"] == {"model_0": {"client_0": 1.0}, "north|<b>": {"client_1": 1.0}}
    assert (exported / "preprocessing.json").read_text() == (run / "preprocessing.json").read_text()
    names = {path.name for path in exported.iterdir() if path.is_file()}
    weights = {f"{name}{ending}" for name in about["models"] for ending in (".pt2", ".safetensors")}
    texts = {"README.md", "predict.py", "preprocess.py", "table_text.py", "export.json", "preprocessing.json"}
    assert names == weights | texts
    card = (exported / "README.md").read_text()
    front, body = card.removeprefix("---\n").split("---\n", 1)
    assert yaml.safe_load(front)["tags"][-1] == "ifca"
    assert "clustered federated learning" in body or "personalised federated learning" in body
    assert "| model | `mlp`" in body
    # Whom the models are of is for their makers to tell.
    assert "north" not in body


@pytest.mark.usefixtures("no_pictures")
def test_the_card_of_linear_models_names_newtons_steps_and_no_learning_rate(tmp_path: Path) -> None:
    sites = {name: (np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * 3], np.arange(12) % 2) for name in ("a", "b")}
    keys = {"task.model": "mlp", "task.model_options": {"hidden": []}, "train.solver": "newton"}
    found = florets.run(clients=sites, strategy="fedavg", num_rounds=1, quiet=True, results_dir=tmp_path, **keys)
    export(found.folder, tmp_path / "card")
    card = (tmp_path / "card" / "README.md").read_text()
    assert "| model | linear, 10 parameters and buffers |" in card
    assert "| local training | 2 Newton step(s) with ridge 1 in a round |" in card


def test_nothing_that_exists_is_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        export(run, tmp_path)
    with pytest.raises(ConfigError, match="is a file"):
        export(run, tmp_path / "mine.txt")
    assert main(["export", f"run={run}"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


PREPARED = Preprocessing(
    numeric=(NumericInput("a", 1.5, 2.0, True, low=1.25, high=4.5), NumericInput("b", -3.0, 0.5, False)),
    categorical=(
        CategoricalInput("c", ("1", "2"), False, "2", False),
        CategoricalInput("d", ("x", "true", "1,5", "1.5"), True, "x", True),
    ),
    target="y",
    classes={},
    ids=("who",),
)
TABLES = [
    "a,b,c,d\n1,2,1,x\n,NA,2.0,TRUE\n?,1e3,9,\n",
    "who;a;b;c;d\nu;1,5;2;1;1,5\nv;2,25;;x;z\n",
    "a\tb\tc\td\ty\n 1\t.5\t01\tx \t7\nnull\t+5.\t2\tnone\t8\n",
    'a|b|c|d\n"1"|2|1|"x"\n\n3|4|2|y\n',
]
REFUSED = [
    "a,b,c\n1,2,1\n",
    "a,b,c,d\n1,two,1,x\n3,4,1,x\n5,6,1,x\n",
    "a;b;c;d\n1.234;2;1;x\n2;3;2;x\n",
    "a;b;c;d\n1,234;2;1;x\n2;3;2;x\n",
    "a,b,c,d\n1,2,1\n1,2,1,x\n",
    "a,b,c,d\n1e200,2,1,x\n1,2,1,x\n",
]


def own_reader(
    folder: Path, prepared: Preprocessing, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[torch.Tensor, dict[str, Any]]]:
    """Return `read_inputs` as an export with this preprocessing has it."""
    import florets.task.exported

    source = Path(florets.task.exported.__file__).with_name("preprocess_tables.py")
    (folder / "preprocess.py").symlink_to(source)
    (folder / "table_text.py").symlink_to(table_text.__file__)
    monkeypatch.syspath_prepend(folder)
    (folder / "preprocessing.json").write_text(json.dumps(prepared.to_plain()))
    marks = {"missing": list(MISSING), "cells_of_classes": []}
    (folder / "export.json").write_text(json.dumps({"table": marks}))
    found: Callable[[str], tuple[torch.Tensor, dict[str, Any]]]
    found = runpy.run_path(str(folder / "preprocess.py"))["read_inputs"]
    return found


def test_a_table_becomes_the_same_inputs_as_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = own_reader(tmp_path, PREPARED, monkeypatch)
    for number, text in enumerate(TABLES):
        path = tmp_path / f"{number}.csv"
        path.write_text(text)
        expected = read_new_table(path, Declaration(), PREPARED, False)
        capsys.readouterr()
        x, beside = read(str(path))
        # Values as in another unit get as many warnings.
        assert capsys.readouterr().err.count("warning: ") == sum("warning: " in note for note in expected.notes)
        np.testing.assert_allclose(x.numpy(), expected.x, rtol=0, atol=1e-6, err_msg=text)
        assert list(map(int, beside["missing"])) == expected.counts["missing"].tolist()
        assert list(map(int, beside["unknown"])) == expected.counts["unknown"].tolist()
    for number, text in enumerate(REFUSED):
        path = tmp_path / f"refused-{number}.csv"
        path.write_text(text)
        for reader in (read, lambda file: read_new_table(Path(file), Declaration(), PREPARED, False)):
            with pytest.raises(ValueError, match=r"."):
                reader(str(path))


def test_what_a_node_declares_of_its_tables_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = own_reader(tmp_path, PREPARED, monkeypatch)
    (tmp_path / "new.csv").write_text(TABLES[0])
    (tmp_path / "new.toml").write_text("scale = {a = 100}\n")
    with pytest.raises(ValueError, match=r"new\.toml declares scale, which only `florets predict` reads"):
        read(str(tmp_path / "new.csv"))


def models_of(name: str, shape: tuple[int, ...], loss: str, options: dict[str, Any]) -> Exported:
    """Return two models with random values, running statistics and counters included."""
    agreed = {"input_shape": list(shape), "num_outputs": 3}
    task = Task(TaskSpec("own", "own", name, loss, 1, 0, 0, "", partition_options=agreed, model_options=options))
    rng = np.random.default_rng(0)
    template = {entry: values.numpy() for entry, values in task.build_model().state_dict().items()}

    def drawn(values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(rng.random(values.shape) if values.dtype.kind == "f" else 3).astype(values.dtype)

    states = [{entry: drawn(values) for entry, values in template.items()} for _ in range(2)]
    run = RunModels(SimpleNamespace(), task, tuple(states), None)  # type: ignore[arg-type]  # no configuration
    return Exported(run, {f"model_{k}": state for k, state in enumerate(states)}, {}, ())


MODELS: list[Any] = [
    pytest.param(("mlp", (6,), "cross_entropy", {}), marks=pytest.mark.slow),
    # Batch normalisation and dropout.
    ("cifar_cnn", (3, 8, 8), "cross_entropy", {"channels": [4, 4], "hidden": [8]}),
    pytest.param(
        ("text_cnn", (9,), "cross_entropy", {"tokens": 20, "embedding": 4, "filters": 3}), marks=pytest.mark.slow
    ),
]


def sample(found: Exported, count: int) -> torch.Tensor:
    rng = np.random.default_rng(count)
    shape = (count, *found.run.task.input_shape)
    values = rng.integers(0, 20, shape) if found.run.task.spec.model == "text_cnn" else rng.random(shape)
    return torch.from_numpy(values.astype(np.float32))


def outputs(found: Exported, name: str, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = loaded_module(found.run.task, found.models[name]).eval()(x)
    return result


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[0])
def test_a_program_computes_what_the_model_does(model: Any, tmp_path: Path) -> None:
    found = models_of(*model)
    _write_models(tmp_path, found)
    for name in found.models:
        program = torch.export.load(tmp_path / f"{name}.pt2").module()
        for count in (1, 5):
            x = sample(found, count)
            torch.testing.assert_close(program(x), outputs(found, name, x), rtol=1e-6, atol=1e-6)


def test_arrays_are_read_and_mixtures_are_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import florets.task.exported

    found, home = models_of("mlp", (6,), "cross_entropy", {}), Path(florets.task.exported.__file__).parent
    _write_models(tmp_path, found)
    (tmp_path / "predict.py").symlink_to(home / "predict.py")
    (tmp_path / "preprocess.py").symlink_to(home / "preprocess_arrays.py")
    sites = {"s": {"model_0": 0.25, "model_1": 0.75}}
    about = {
        "task": "classification",
        "input_shape": [6],
        "classes": ["a", "b", "c"],
        "models": ["model_0", "model_1"],
    }
    (tmp_path / "export.json").write_text(json.dumps({**about, "sites": sites}))
    x = sample(found, 4)
    torch.save(x, tmp_path / "x.pt")
    (tmp_path / "x.json").write_text(json.dumps(x.tolist()))
    np.save(tmp_path / "x.npy", x.numpy())
    for broken in ("broken.npz", "broken.json"):
        (tmp_path / broken).write_text("[[1, 2")
    np.savez(tmp_path / "x.npz", x=x.numpy())
    monkeypatch.syspath_prepend(tmp_path)
    shipped = runpy.run_path(str(tmp_path / "predict.py"))
    both = [predict(found.run.task, state, x.numpy()).probabilities for state in found.models.values()]
    assert both[0] is not None
    assert both[1] is not None
    for name in ("x.pt", "x.json", "x.npy", "x.npz"):
        inputs, beside = shipped["read_inputs"](str(tmp_path / name))
        assert torch.equal(inputs, x)
        assert beside == {}
    values = shipped["predict"]("s", x)
    np.testing.assert_allclose(values, 0.25 * both[0] + 0.75 * both[1], rtol=0, atol=1e-6)

    def printed(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["predict.py", *words])
        runpy.run_path(str(tmp_path / "predict.py"), run_name="__main__")
        return capsys.readouterr().out

    rows = list(csv.DictReader(printed("s", str(tmp_path / "x.pt")).splitlines()))
    assert [[float(row[f"p({name})"]) for name in "abc"] for row in rows] == values.tolist()
    assert [row["prediction"] for row in rows] == ["abc"[place] for place in values.argmax(dim=1)]
    (tmp_path / "no.pt").write_text("no archive")
    for words, text in {
        ("t", "x.pt"): "t: there is no such site",
        ("s", "no.pt"): "cannot be read",
        ("s", "broken.npz"): "broken.npz: is damaged",
        ("s", "broken.json"): "broken.json: is damaged",
        ("s", "x.csv"): "give .json",
    }.items():
        with pytest.raises(SystemExit, match=text):
            printed(words[0], str(tmp_path / words[1]))
    torch.save(torch.tensor([[0, 51, 255, 0, 0, 0]], dtype=torch.uint8), tmp_path / "bytes.pt")
    assert shipped["read_inputs"](str(tmp_path / "bytes.pt"))[0].tolist()[0][:3] == pytest.approx([0, 0.2, 1])
    torch.save(x[:, :5], tmp_path / "short.pt")
    with pytest.raises(ValueError, match="but the models take"):
        shipped["read_inputs"](str(tmp_path / "short.pt"))
    monkeypatch.delitem(sys.modules, "preprocess")
