"""`task.adapter=lora`: small trained changes of a frozen model, alone in what travels."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import florets
from florets.conf.problems import ConfigError
from florets.task.adapters import adapt
from florets.task.imported import with_torchvision
from florets.task.settings import Adapter

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason='needs pip install "florets[adapters]"')
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
SMALL: dict[str, Any] = {"num_clients": 4, "k": 2, "num_rounds": 2, "quiet": True, "loss_matrix": False}
SMALL |= {"pictures": False, "train": {"batch_size": 1000}}


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def encoder() -> nn.Module:
    """Return a transformer's layer, which has another, faster pass in eval mode."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (8, 8)), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
                         nn.Flatten(), nn.Linear(64, 10))  # fmt: skip


def transformer(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *encoder().children())  # type: ignore[arg-type]


def wrapped(input_shape: tuple[int, ...], num_outputs: int) -> nn.Module:
    """Return a module that its author has wrapped."""
    import peft

    return peft.get_peft_model(net(), peft.LoraConfig(r=2, target_modules=["1", "3"]))  # type: ignore[no-any-return]


@pytest.mark.slow
@needs_peft
@pytest.mark.parametrize(("train", "trained"), [("both", 4 * (64 + 16) + 4 * (16 + 10)), ("b", 4 * 16 + 4 * 10)])
def test_the_factors_are_trained_alone(train: str, trained: int) -> None:
    module = net()
    x = torch.randn(5, 1, 8, 8)
    before = module(x)
    adapt(module, Adapter.of({"rank": 4, "train": train}))
    assert sum(p.numel() for p in module.parameters() if p.requires_grad) == trained
    assert torch.allclose(module(x), before, atol=0.5)
    part: Any = module[3]
    change = 4.0 * part.lora_B["lora"].weight @ part.lora_A["lora"].weight
    hidden = module[:3](x)
    assert torch.allclose(part(hidden), part.base_layer(hidden) + hidden @ change.T, atol=1e-5)


@needs_peft
def test_a_layer_can_be_trained_whole_next_to_adapters() -> None:
    module = net()
    adapt(module, Adapter.of({"rank": 1, "whole": ["3"]}))
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    assert names == ["1.lora_A.lora.weight", "1.lora_B.lora.weight", "3.weight", "3.bias"]


@needs_peft
@pytest.mark.parametrize(
    ("options", "build", "message"),
    [
        (
            {"targets": ["nix"]},
            net,
            r"task.adapter_options.targets: no layer is called 'nix'; the layers are 0, 1, 2, 3",
        ),
        ({"targets": ["2"]}, net, r"task.adapter_options.targets=\['2'\]: Target module ReLU"),
        ({}, lambda: nn.Sequential(nn.Conv2d(1, 2, 3)), "the model has no linear layers; name some .*of 0"),
    ],
)
def test_what_fits_no_layer_is_refused(options: dict[str, Any], build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapt(build(), Adapter.of(options))


def test_options_without_adapters_have_no_effect_and_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task.adapter_options.rank=4: has an effect only with task.adapter=lora"):
        florets.run(task={"adapter_options": {"rank": 4}}, **SMALL)


@needs_peft
@pytest.mark.parametrize("train", ["b", pytest.param("both", marks=pytest.mark.slow)])
def test_adapters_travel_alone_and_models_are_whole(train: str, tmp_path: Path) -> None:
    task = {"adapter": "lora", "adapter_options": {"rank": 2, "train": train}, "num_clusters": 2}
    run = florets.run(task=task, strategy="ifca", model=net, results_dir=tmp_path, **SMALL)
    sent = 2 * (16 + 10) + (2 * (64 + 16) if train == "both" else 0)
    # Headers of 128 bytes with each array, and the tests.
    assert run.rounds["bytes_up"].iloc[-1] < 4 * (4 * sent + 1200)
    first, second = run.models
    shared = {name for name, value in first.named_parameters() if not value.requires_grad}
    assert shared >= {"1.base_layer.weight", "3.base_layer.bias"}
    assert ("1.lora_A.lora.weight" in shared) == (train == "b")
    own, other = first.state_dict(), second.state_dict()
    assert all((name in shared) == torch.equal(own[name], other[name]) for name in own)


@pytest.mark.slow
@needs_peft
def test_in_eval_mode_a_transformers_adapters_count(tmp_path: Path) -> None:
    task = {"adapter": "lora", "adapter_options": {"targets": ["linear1"]}, "num_clusters": 2}
    run = florets.run(task=task, strategy="fedavg", model=transformer, results_dir=tmp_path, **SMALL)
    module, x = run.models[0], torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        evaluated, trained = module.eval()(x), module.train()(x)
    assert torch.allclose(evaluated, trained, atol=1e-5)


@pytest.mark.slow
@needs_peft
def test_a_module_that_its_author_wrapped_works_as_it_is(tmp_path: Path) -> None:
    with_torchvision(lambda: __import__("peft"))
    run = florets.run(task={"num_clusters": 2}, strategy="clove", model=wrapped, results_dir=tmp_path, **SMALL)
    assert run.rounds["bytes_up"].iloc[-1] < 4 * 4 * 64 * 16
    assert any("base_layer" in name for name in run.models[1].state_dict())
