"""Runs and stacks on a CUDA device beside the same on the CPU; they need one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.profiler import ProfilerActivity, profile

from florets.conf.compose import compose
from florets.engines.engine import run
from florets.reports.summary import RunSummary
from florets.task.models.mlp import mlp
from florets.task.training.networks import network_of
from florets.task.training.settings import Training
from florets.task.training.vectorised import DEVICE_MEMORY, Share, stack_size, stacked_update
from tests.test_fake_device import MODELS, made

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICE = torch.device("cuda")
LEAST = ("num_clients=8", "num_rounds=4", "eval_every=4", "loss_matrix=false", "pictures=false")


def play(folder: Path, device: str, *overrides: str) -> RunSummary:
    given = [f"results_dir={folder}", "quiet=true", f"device={device}", *LEAST, *overrides]
    return run(compose(given), given)


@pytest.mark.parametrize(
    "overrides",
    [
        ("strategy=clove",),
        ("strategy=ifca",),
        ("strategy=cfl_gp",),
        ("strategy=clove", "batch_clients=auto"),
        ("strategy=ifca", "batch_clients=auto", "task.model=linear", "train=sgd"),
        ("strategy=clove", "batch_clients=auto", "task.model=cnn", "task.model_options={kernel: 3, padding: 1}"),
    ],
    ids=["clove", "ifca", "cfl_gp", "clove in blocks", "linear in blocks", "convolutions in blocks"],
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


@pytest.mark.parametrize("model", ["perceptron", "linear", "convolutions"])
def test_a_stack_is_trained_with_one_wait(model: str) -> None:
    make, loss = MODELS[model]
    module, start, parts = made(make, loss)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        trained(module, start, parts, loss)
    assert len([event for event in seen.events() if event.name.startswith("Memcpy DtoH")]) == 1


def test_a_stack_holds_the_memory_that_its_size_was_chosen_for() -> None:
    module = mlp((784,), 10, [2000])
    parts = [(torch.rand(100, 784), torch.randint(10, (100,))) for _ in range(8)]
    state = dict(module.state_dict())
    # What the first call chooses and keeps is not of the stack.
    trained(module, state, parts, "cross_entropy")
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    trained(module, state, parts, "cross_entropy")
    own = DEVICE_MEMORY / stack_size(module.to(DEVICE), parts[0][0].to(DEVICE), 8)
    # Half as much again: the data as they were given, and the copy in which all is fetched.
    assert torch.cuda.max_memory_allocated() - held < 1.5 * len(parts) * own


def trained(
    module: torch.nn.Module,
    start: dict[str, torch.Tensor],
    parts: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: str,
) -> None:
    network, state = network_of(module), {name: value.to(DEVICE) for name, value in start.items()}
    assert network is not None
    moved = [(x.to(DEVICE), y.to(DEVICE)) for x, y in parts]
    shares = [Share(state, x, y, lambda i=i: np.random.default_rng(i)) for i, (x, y) in enumerate(moved)]
    stacked_update(network, shares, loss, Training(0.01, 1.5, 8))
