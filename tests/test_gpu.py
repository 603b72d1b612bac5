"""Whole runs on a CUDA device beside the same runs on the CPU; they need one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from florets.conf.compose import compose
from florets.server_app.main import run
from florets.server_app.results.summary import RunSummary

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LEAST = ("num_clients=8", "num_rounds=4", "eval_every=4", "loss_matrix=false", "pictures=false")


def play(folder: Path, device: str, *overrides: str) -> RunSummary:
    given = [f"results_dir={folder}", "quiet=true", f"device={device}", *LEAST, *overrides]
    return run(compose(given), given)


@pytest.mark.parametrize(
    "overrides",
    [("strategy=clove",), ("strategy=ifca",), ("strategy=cfl_gp",), ("strategy=clove", "batch_clients=auto")],
    ids=["clove", "ifca", "cfl_gp", "clove in blocks"],
)
def test_a_gpu_gives_the_cpus_groups_and_nearly_its_models(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    summaries = [play(tmp_path / where, device, *overrides) for where, device in (("a", "cpu"), ("b", "cuda"))]
    models = [load_file(Path(summary.folder) / "models.safetensors") for summary in summaries]
    assert summaries[0].final_ari == summaries[1].final_ari
    assert models[0].keys() == models[1].keys()
    for name, values in models[0].items():
        # Sums are taken in another order, and some steps of Adam make more of it.
        np.testing.assert_allclose(models[1][name], values, atol=1e-2)


def test_two_equal_runs_on_a_gpu_agree(tmp_path: Path) -> None:
    first, second = (
        load_file(Path(play(tmp_path / name, "cuda").folder) / "models.safetensors") for name in ("one", "two")
    )
    for name, values in first.items():
        np.testing.assert_allclose(second[name], values, atol=1e-5)
