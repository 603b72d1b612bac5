"""`florets predict` and `florets assign` on raw tables: each record alone, prepared as those of the run were."""

import csv
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import florets
from florets.commands.main import main
from florets.reports.pooled import read_test_statistics
from florets.task.new_client import predict
from florets.task.task import Task, TaskSpec

HEAD = ("patient", "age", "chol", "sex", "sick")
SETTINGS = ("experiment=own_data", "strategy=fedavg", "min_clients=3", "num_rounds=3", "quiet=true")


def records(seed: int, n: int = 40) -> list[dict[str, str]]:
    """Return raw records: ids that begin like formulas, words, a gap in every tenth, no target in the last."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        age, chol, woman = rng.normal(60, 10), rng.normal(200, 40), rng.random() < 0.5
        rows.append({
            "patient": f"={seed}-{number}", "age": f"{age:.1f}", "chol": "" if number % 10 == 3 else f"{chol:.1f}",
            "sex": "F" if woman else "M", "sick": "yes" if (age - 60) / 10 + (chol - 200) / 40 > 0 else "no",
        })  # fmt: skip
    rows[-1]["sick"] = "?"
    return rows


def write(path: Path, rows: Sequence[Mapping[str, str]], head: Sequence[str] = HEAD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, head, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def train(root: Path, *given: str) -> Path:
    for seed, name in enumerate(("east", "north", "west")):
        write(root / "data" / f"{name}.csv", records(seed))
    keys = (f"data_dir={root / 'data'}", f"results_dir={root / 'results'}", "target=sick", "task.table.id=[patient]")
    assert main([*SETTINGS, *keys, *given]) == 0
    (folder,) = (path.parent for path in (root / "results").rglob("preprocessing.json"))
    return folder


def predicted(run: Path, path: Path, *given: str) -> list[dict[str, str]]:
    target = path.with_name(f"{path.stem}-predictions.csv")
    target.unlink(missing_ok=True)
    assert main(["predict", f"run={run}", f"data={path}", f"output={target}", *given]) == 0
    with target.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("tables"), "task.model=mlp")


@pytest.mark.parametrize("model", ["mlp", "linear", "cnn"])
def test_a_prediction_is_equal_to_the_bit_whoever_else_is_in_the_batch(model: str) -> None:
    shape = (1, 28, 28) if model == "cnn" else (37,)
    agreed = {"input_shape": list(shape), "num_outputs": 3}
    task = Task(TaskSpec("own", "own", model, "cross_entropy", 1, 0, 0, "", partition_options=agreed))
    state = {name: values.numpy() for name, values in task.build_model().state_dict().items()}
    x = np.random.default_rng(0).standard_normal((23, *shape)).astype(np.float32)
    whole = predict(task, state, x).probabilities
    assert whole is not None
    assert whole.shape == (23, 3)
    for rows in ([4], [22, 4], [*range(7)], list(range(22, 0, -1))):
        part = predict(task, state, x[rows]).probabilities
        assert part is not None
        np.testing.assert_array_equal(part, whole[rows])


def test_one_record_gets_what_it_gets_among_many(run: Path, tmp_path: Path) -> None:
    rows = records(9)
    # Blanks after a mark make pandas read the column otherwise.
    rows[0]["age"] = "? "
    many = predicted(run, write(tmp_path / "many.csv", rows))
    for number in (0, 3, 5):
        (alone,) = predicted(run, write(tmp_path / "one.csv", [rows[number]]))
        assert alone | {"sample": ""} == many[number] | {"sample": ""}
    shuffled = predicted(run, write(tmp_path / "shuffled.csv", rows[::-1], ("sex", "sick", "chol", "age", "patient")))
    assert [row | {"sample": ""} for row in shuffled[::-1]] == [row | {"sample": ""} for row in many]
    without = predicted(run, write(tmp_path / "without.csv", rows, HEAD[:-1]))
    assert without == many


def test_a_named_client_s_units_hold_for_a_file_elsewhere(tmp_path: Path) -> None:
    run, rows = train(tmp_path), records(9)
    usual = predicted(run, write(tmp_path / "usual.csv", rows))
    (tmp_path / "data" / "east.toml").write_text("scale = {chol = 38.67}\n")
    other = [{**row, "chol": row["chol"] and f"{float(row['chol']) / 38.67:.12f}"} for row in rows]
    found = predicted(run, write(tmp_path / "other.csv", other), "client=east")
    assert [row["p(yes)"] for row in found] == [row["p(yes)"] for row in usual]
    # A data frame is read as the file is.
    predictions = florets.load(run).predict(pd.read_csv(tmp_path / "other.csv"), client="east")
    assert [f"{value:.9g}" for value in predictions.frame()["p(yes)"]] == [row["p(yes)"] for row in usual]
    replace(predictions, ids={"sample": predictions.ids["patient"]}).write(tmp_path / "own.csv")
    assert pd.read_csv(tmp_path / "own.csv")["sample"][0] == "'=9-0"


def test_a_row_has_ids_probabilities_and_counts(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = records(9)
    rows[1]["sex"] = "other"
    found = predicted(run, write(tmp_path / "new.csv", rows))
    columns = ["sample", "patient", "prediction", "probability", "p(no)", "p(yes)", "missing", "unknown"]
    assert list(found[0]) == columns
    assert [row["sample"] for row in found] == [str(number + 1) for number in range(40)]
    assert [row["patient"] for row in found] == [f"'=9-{number}" for number in range(40)]
    assert all(float(row["p(no)"]) + float(row["p(yes)"]) == pytest.approx(1, abs=1e-5) for row in found)
    assert all(row["probability"] == row[f"p({row['prediction']})"] for row in found)
    assert [row["missing"] for row in found] == ["1" if number % 10 == 3 else "0" for number in range(40)]
    assert [number for number, row in enumerate(found) if row["unknown"] != "0"] == [1]
    out = capsys.readouterr().out
    assert "missing: 4 values in 4 records\nunknown: 1 value in 1 record\n40 predictions of model 0: " in out


def test_values_far_from_the_runs_are_reported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predicted(run, write(tmp_path / "same.csv", records(8)))
    assert "warning" not in capsys.readouterr().out
    mmol = [{**row, "chol": f"{float(row['chol']) / 38.67}" if row["chol"] else ""} for row in records(8)]
    predicted(run, write(tmp_path / "mmol.csv", mmol))
    assert "warning: 'chol' lies more than 4 standard deviations from the run's mean" in capsys.readouterr().out


def test_a_seventh_site_says_what_it_has_otherwise(run: Path, tmp_path: Path) -> None:
    rows = records(9)
    plain = predicted(run, write(tmp_path / "plain.csv", rows))
    # Cholesterol in another unit and under another name, and a mark of its own for what is missing.
    other = [{**row, "serum": f"{float(row['chol']) / 4}" if row["chol"] else "-9", "note": "=1+1"} for row in rows]
    head = ("patient", "age", "serum", "sex", "note")
    path = write(tmp_path / "seventh" / "raw.csv", other, head)
    text = 'rename = {serum = "chol"}\nscale = {chol = 4}\nmissing = ["-9"]\ndrop = ["note"]\n'
    for name in ("raw.toml", "node.toml"):
        (path.parent / name).write_text(text)
        assert predicted(run, path) == plain
        (path.parent / name).unlink()
    assert main(["predict", f"run={run}", f"data={path}", f"output={tmp_path / 'p.csv'}"]) == 2


def test_assign_reads_targets_as_the_run_did(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "new.csv", records(9))
    assert main(["assign", f"run={run}", f"data={path}"]) == 0
    out = capsys.readouterr().out
    assert "new.csv: records without a target that are left out: 1" in out
    assert "On 39 samples: accuracy " in out
    assert main(["assign", f"run={run}", f"data={write(path, records(9), HEAD[:-1])}"]) == 2
    assert "new.csv has no column 'sick', the target" in capsys.readouterr().err
    rows = records(9)
    rows[0]["sick"] = "perhaps"
    assert main(["assign", f"run={run}", f"data={write(path, rows)}"]) == 2
    assert "1 record has a target that is not one of the classes" in capsys.readouterr().err


def test_a_regressions_values_and_errors_are_in_the_targets_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, name in enumerate(("a", "b", "c")):
        # 500 above or below the line in turn.
        ages = [(row["age"], number % 2) for number, row in enumerate(records(seed))]
        rows = [{"x": age, "dose": f"{1000 * float(age) + 1000 * odd - 500}"} for age, odd in ages]
        write(tmp_path / "data" / f"{name}.csv", rows, ("x", "dose"))
    keys = [f"data_dir={tmp_path / 'data'}", f"results_dir={tmp_path / 'results'}", "target=dose"]
    more = ["statistics=true", "task.model=linear", "train.learning_rate=0.1", "train.local_epochs=30"]
    assert main([*SETTINGS, *keys, *more, "train.optimizer=sgd"]) == 0
    (clients,) = (tmp_path / "results").rglob("clients.csv")
    capsys.readouterr()
    found = predicted(clients.parent, write(tmp_path / "new.csv", [{"x": "50"}, {"x": "70"}], ("x", "z")))
    np.testing.assert_allclose([float(row["prediction"]) for row in found], [50000, 70000], rtol=0.005)
    assert list(found[0]) == ["sample", "prediction", "missing", "unknown"]
    assert "2 predictions of model 0, dose: " in capsys.readouterr().out
    rows = [{"x": "50", "dose": "53000"}, {"x": "70", "dose": "67000"}]
    path = write(tmp_path / "labelled.csv", rows, ("x", "dose"))
    assert main(["assign", f"run={clients.parent}", f"data={path}"]) == 0
    # Errors of 3000 of targets 53000 and 67000: R2 = 1 - 3000**2 / 7000**2.
    said = re.search(r"RMSE (\S+), R2 (\S+), loss", capsys.readouterr().out)
    assert said is not None
    assert float(said[1]) == pytest.approx(3000, rel=0.1)
    assert float(said[2]) == pytest.approx(0.816, abs=0.04)
    # The sites' own tests are in that unit as well, and not in that of the models, whose spread is 1.
    with clients.open(newline="") as file:
        errors = [float(row["test_mae"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(errors, 500, rtol=0.2)
    tests = [client.parts["test"] for client in read_test_statistics(clients.parent).values()]
    assert [test.sums.sums[3] / test.n for test in tests if test.sums] == pytest.approx(errors)


@pytest.mark.parametrize("text", ["{", "[" * 1000, '{"target": "sick"}'])
def test_a_preprocessing_that_was_made_up_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "preprocessing.json").write_text(text)
    path = write(tmp_path / "new.csv", records(9))
    assert main(["predict", f"run={folder}", f"data={path}", f"output={tmp_path / 'p.csv'}"]) == 2
    assert "run the experiment again" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()
