"""Raw tables on real SuperNodes: one run, with what each site declares in its own folder, and no script."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from florets.deploy.federation import Federation
from florets.task.data.tables.preprocessing import Preprocessing

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def _write(folder: Path, seed: int, unit: float, name: str) -> None:
    """Write 80 patients whose disease follows from age and cholesterol."""
    rng = np.random.default_rng(seed)
    age, dose, sex = rng.normal(60, 9, 80), rng.normal(230, 40, 80), rng.integers(0, 2, 80)
    ill = (age - 60) / 9 + (dose - 230) / 40 + rng.normal(0, 0.3, 80) > 0
    lines = [f"patient_id,age,sex,{name},ill"]
    for row in range(80):
        known = "?" if row % 9 == 0 else f"{dose[row] / unit:.3f}"
        lines.append(f"P{row},{age[row]:.1f},{'MF'[sex[row]]},{known},{'yes' if ill[row] else 'no'}")
    folder.mkdir(parents=True)
    (folder / "export.csv").write_text("\n".join(lines) + "\n")


def test_raw_tables_of_real_nodes_need_no_script(tmp_path: Path) -> None:
    _write(tmp_path / "north", 0, 1.0, "cholesterol")
    _write(tmp_path / "south", 1, 38.67, "serum_chol")
    (tmp_path / "south" / "node.toml").write_text(
        'rename = {serum_chol = "cholesterol"}\nscale = {cholesterol = 38.67}\n'
    )
    with Federation(tmp_path / "federation") as federation:
        for name in ("north", "south"):
            federation.register(name, tmp_path / name, 0)
            federation.start(name)
        settings = "target=ill strategy=fedavg min_clients=2 num_rounds=2 start_timeout=120"
        results = tmp_path / "results"
        run_id = federation.run(ROOT, {"experiment": "own_data", "overrides": settings, "results-dir": str(results)})
        deadline, status, details = time.monotonic() + 600, "", ""
        while not status.startswith("finished"):
            assert time.monotonic() < deadline, federation.log("superlink")[-3000:]
            time.sleep(5)
            status, details = federation.status(run_id)
        assert status == "finished:completed", details
    (log,) = results.rglob("run.log")
    assert "2 sites, 160 records: north 80, south 80" in log.read_text(encoding="utf-8")
    (saved,) = results.rglob("preprocessing.json")
    prepared = Preprocessing.of(json.loads(saved.read_text(encoding="utf-8")))
    assert [column.name for column in prepared.numeric] == ["age", "cholesterol"]
    assert prepared.ids == ("patient_id",)
    # Both sites in one unit.
    assert 215 < prepared.numeric[1].mean < 245
    assert prepared.numeric[1].std < 60
    assert prepared.classes == {"no": ("no",), "yes": ("yes",)}
