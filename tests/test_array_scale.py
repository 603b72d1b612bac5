"""Arrays are prepared like tables: standardised by pooled figures, saved with the models, scores in their unit."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import florets
from florets.api.export import export
from florets.task.data.array_scale import ArrayScale
from florets.task.data.own import own

RNG = np.random.default_rng(0)
CENTRE, WIDTH = np.array([5e7, 0.0, 3.0]), np.array([10.0, 1e-4, 1.0])
KEYS: dict[str, Any] = {
    "strategy": "fedavg", "num_rounds": 8, "quiet": True, "pictures": False, "loss_matrix": False, "seed": 0,
    "task.model": "linear",
}  # fmt: skip


def clients(count: int = 4, records: int = 60) -> list[tuple[np.ndarray, np.ndarray]]:
    z = RNG.normal(size=(count, records, 3))
    return [(one * WIDTH + CENTRE, 3e7 + 2.0 * (one @ [1.0, -2.0, 0.5])) for one in z]


def test_values_and_inputs_of_any_scale_are_learned_and_predicted_in_their_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = clients()
    run = florets.run(given, **KEYS)
    x, y = given[0]
    assert np.abs(run.predict(x).labels - y).mean() < 0.5
    scale = ArrayScale.of(run.config["task"]["data_options"]["scale"])
    assert scale.mean == pytest.approx(CENTRE, rel=1e-6, abs=1.0)
    assert scale.std == pytest.approx(WIDTH, rel=0.2)
    assert (scale.target_mean, scale.target_std) == (
        pytest.approx(3e7, abs=2),
        pytest.approx(2 * 21**0.5 / 2, rel=0.2),
    )
    assert run.clients["test_r2"].min() > 0.9
    # Of errors in the targets' unit.
    spread = scale.target_std * run.clients["test_loss"] ** 0.5
    assert run.clients["test_rmse"].tolist() == pytest.approx(spread.tolist())
    folder = export(run.folder, tmp_path / "left")
    (folder_x := tmp_path / "x.json").write_text(json.dumps(x.tolist()))
    monkeypatch.syspath_prepend(folder)
    # Each export has one of this name.
    sys.modules.pop("preprocess", None)
    shipped = runpy.run_path(str(Path(folder) / "predict.py"))
    del sys.modules["preprocess"]
    inputs, _ = shipped["read_inputs"](str(folder_x))
    np.testing.assert_allclose(shipped["predict"]("0", inputs)[:, 0], run.predict(x).labels, rtol=0, atol=0.05)


def test_a_scale_is_checked_and_brings_each_record_alone_to_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", x=np.array([[3.0, 1e9], [5.0, 1e9 + 2]]), y=np.array([3e7, 3e7 + 4]))
    np.savez(tmp_path / "test.npz", x=np.array([[3.0, 1e9]]), y=np.array([3e7 + 4]))
    scale = {"mean": [4.0, 1e9], "std": [1.0, 2.0], "target_mean": 3e7, "target_std": 2.0}
    data = own(tmp_path, 0, 0, regression=True, scale=scale)
    assert data.x_train.tolist() == [[-1, 0], [1, 1]]
    assert (data.y_train.tolist(), data.y_test.tolist(), data.target_scale) == ([0, 2], [2], 2.0)
    for wrong in (
        {"mean": [1.0]},
        {"mean": [1.0], "std": [0.0]},
        {"mean": [float("nan")], "std": [1.0]},
        {"means": []},
    ):
        with pytest.raises(ValueError, match=r"task.data_options.scale"):
            ArrayScale.of(wrong)
    with pytest.raises(ValueError, match="the inputs have 2 numbers each, and the run's 1"):
        own(tmp_path, 0, 0, regression=True, scale={"mean": [0.0], "std": [1.0]})
