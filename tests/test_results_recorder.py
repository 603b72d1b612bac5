import csv
import io
import json
import math

import numpy as np
import pytest
from results_examples import CLIENTS, FOUND, evaluations, record, report
from safetensors import safe_open
from safetensors.numpy import load, load_file

from florets.reports.folder import write_arrays
from florets.reports.summary import round_line
from florets.server_app.progress import Progress
from florets.server_app.recorder import Recorder


def recorder(folder, **changes):
    return Recorder(folder, "k: 2\n", "tiny", "clove", 0, 3, **{"quiet": True, **changes})


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_clients_csv_has_true_and_found_cluster_and_result(tmp_path):
    record(tmp_path / "run")
    head, *body = rows(tmp_path / "run" / "clients.csv")
    assert head[:4] == ["client", "true_cluster", "found_cluster", "num_examples"]
    assert body[0] == ["00", "0", "1", "100", "20", "0.25", "0.5", "cpu"]
    assert [row[0] for row in body] == ["00", "01", "02", "03"]


def test_equal_models_make_equal_files_and_one_without_texts_can_be_read(tmp_path):
    arrays = {"1/b": np.arange(6, dtype=np.float32).reshape(2, 3).T, "0/a": np.array(2, dtype=np.int64)}
    texts = {"strategy": "clove", "seed": "0", "experiment": 'é"\n'}
    packed = []
    for order in (list(texts), sorted(texts)):
        write_arrays(file := io.BytesIO(), arrays, {name: texts[name] for name in order})
        packed.append(file.getvalue())
    assert packed[0] == packed[1]
    assert list(json.loads(packed[0][8 : 8 + int.from_bytes(packed[0][:8], "little")])["__metadata__"]) == sorted(
        texts
    )
    (tmp_path / "with").write_bytes(packed[0])
    with safe_open(tmp_path / "with", framework="np") as file:
        assert file.metadata() == texts
    write_arrays(file := io.BytesIO(), arrays)
    for found in (load_file(tmp_path / "with"), load(file.getvalue())):
        assert found.keys() == arrays.keys()
        for name, values in arrays.items():
            np.testing.assert_array_equal(found[name], values, strict=True)


def test_the_loss_matrix_reads_back_to_the_bit_and_is_sorted_by_client(tmp_path):
    losses = np.array([[0.1 + 0.2, math.nan], [1 / 3, 1e-300]])
    with recorder(tmp_path / "run") as run:
        run.clients(CLIENTS)
        run.finish({}, evaluations(), FOUND, (["02", "00"], losses))
    head, first, second = rows(tmp_path / "run" / "loss_matrix.csv")
    assert head == ["client", "true_cluster", "model_0", "model_1"]
    assert first[:2] == ["00", "0"]
    assert [float(value) for value in first[2:]] == [1 / 3, 1e-300]
    assert second[:2] == ["02", "1"]
    assert float(second[2]) == 0.1 + 0.2
    assert second[3] == "nan"


def test_a_crash_leaves_the_rounds_up_to_the_last_whole_one_and_says_why(tmp_path):
    def crash():
        with recorder(tmp_path / "run") as run:
            run.clients(CLIENTS)
            run.round(report(1))
            raise RuntimeError("the machine caught fire")

    with pytest.raises(RuntimeError, match="caught fire"):
        crash()
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1]
    assert "ended early, after 1 round: the machine caught fire" in (tmp_path / "run" / "run.log").read_text()


def test_a_repeated_run_replaces_its_folder_whole_and_says_so(tmp_path, capsys):
    folder = tmp_path / "run"
    record(folder)
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "old").touch()
    capsys.readouterr()
    with recorder(folder):
        names = ["clients_over_rounds.csv", "config.yaml", "rounds.jsonl", "run.log"]
        assert sorted(path.name for path in folder.iterdir()) == names
        assert (folder / "rounds.jsonl").read_text() == ""
    assert f"replaced the results of an earlier run in {folder}" in capsys.readouterr().err
    assert "Replaced the results" in (folder / "run.log").read_text()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_is_a_bar_with_ari_and_accuracy_unless_quiet(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for quiet in (False, True):
        stream = Terminal()
        progress = Progress("tiny", 5, quiet, stream)
        progress.show(round_line(report(2), {}), 1.0)
        # The next round was not evaluated: the bar keeps the figures of the last one that was.
        progress.show(round_line(report(3, evaluations={}), {}), 1.0)
        progress.note("a remark")
        progress.close()
        text = stream.getvalue()
        assert ("\x1b[" in text) is not quiet
        rows = text.splitlines()
        at = max(i for i, row in enumerate(rows) if "3/5" in row)
        assert ("accuracy 75.00%" in "".join(rows[at + 1 : at + 2])) is not quiet
        assert "a remark" in text


def test_a_folder_takes_one_process_at_a_time(tmp_path):
    with recorder(tmp_path / "run") as run:
        run.clients(CLIENTS)
        run.round(report(1))
        for done in (None, 1):
            with pytest.raises(ValueError, match=rf"another process writes to {tmp_path / 'run'}; end it first"):
                recorder(tmp_path / "run", done_rounds=done)
        assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 1
    with recorder(tmp_path / "run", done_rounds=1) as run:
        assert len(run.lines) == 1
    # What fails after the folder was taken lets go of it.
    with pytest.raises(ValueError, match="does not hold rounds 1 to 2"):
        recorder(tmp_path / "run", done_rounds=2)
    recorder(tmp_path / "run").close()
