"""Parameters that a model freezes: made on each side, compared by their hash, and neither sent nor kept per group."""

import copy
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import florets
from florets.conf.problems import ConfigError
from florets.strategies.base.federation import FederationError
from florets.task.layers import at_home, keep_at_home, make_whole
from florets.task.training.model_check import check_model
from florets.task.training.modules import torch_random
from tests.own_functions import frozen_first

CODE = """
from pathlib import Path
import torch
from torch import nn

def from_file(input_shape, num_outputs):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, num_outputs))
    module[1].load_state_dict(torch.load(Path(__file__).with_name("body.pt")))
    module[1].requires_grad_(False)
    return module

def drawn_anew(input_shape, num_outputs):
    module = from_file(input_shape, num_outputs)
    nn.init.normal_(module[1].bias, generator=torch.Generator().manual_seed(torch.seed()))
    return module
"""
SMALL: dict[str, Any] = {"num_clients": 6, "k": 2, "num_rounds": 2, "quiet": True, "loss_matrix": False}
SMALL |= {"task": {"num_clusters": 2}, "pictures": False, "train": {"batch_size": 1000}}


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of a user's whose model functions read their frozen layer from a file."""
    (tmp_path / "home_models.py").write_text(CODE)
    torch.save(nn.Linear(64, 16).state_dict(), tmp_path / "body.pt")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("home_models", None)


class Tied(nn.Module):
    """A frozen embedding under two names, a trained layer, and buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.first.weight.requires_grad_(False)
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.second(self.first(x))))  # type: ignore[no-any-return]


def test_a_state_dict_holds_what_trains_and_buffers_and_copies_do_as_well() -> None:
    module = Tied()
    keep_at_home(module)
    entries = ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert list(module.state_dict()) == [*entries, "out.weight", "out.bias"]
    assert list(at_home(module)) == ["first.weight", "second.weight"]
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.out.bias.fill_(7.0)
        module.load_state_dict(other.state_dict())
    assert module.out.bias.tolist() == [7.0] * 3
    with pytest.raises(RuntimeError, match=r'Missing key.* "out.bias"'):
        module.load_state_dict({name: value for name, value in other.state_dict().items() if name != "out.bias"})
    assert next(iter(make_whole(other).state_dict())) == "first.weight"


def half(module: nn.Module) -> None:
    """Keep the frozen layer in half precision."""
    layer: Any = module[1]  # type: ignore[index]
    layer.bfloat16()
    layer.forward = lambda x: nn.functional.linear(x.bfloat16(), layer.weight, layer.bias).float()


def kept_mean(module: nn.Module) -> None:
    """Note a mean in a parameter that no gradient moves."""
    layer = module[1]  # type: ignore[index]

    def note(part: nn.Module, x: Any, y: torch.Tensor) -> None:
        part.bias.copy_(y.detach().mean(dim=0))  # type: ignore[operator]

    layer.register_forward_hook(note)


@pytest.mark.parametrize(("change", "message"), [(half, ""), (kept_mean, "one pass through it changes a parameter")])
def test_frozen_parameters_may_have_any_type_and_may_not_change(change: Callable[[Any], None], message: str) -> None:
    with torch_random(np.random.default_rng(0)):
        module, x, y = frozen_first((1, 8, 8), 10), torch.randn(2, 1, 8, 8), torch.tensor([0, 2])
    change(module)
    keep_at_home(module)
    if not message:
        check_model(module, x, y, "cross_entropy", 10, 0)
        return
    with pytest.raises(ValueError, match=message):
        check_model(module, x, y, "cross_entropy", 10, 0)


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "clove"},
        {"strategy": "discovery"},
        {"strategy": "fedavg", "privacy": {"kind": "central", "epsilon": 50.0}, "min_clients": 6},
    ],
    ids=lambda keys: keys["strategy"],
)
def test_what_trains_alone_travels(keys: dict[str, Any], tmp_path: Path) -> None:
    seen = florets.run(model=frozen_first, results_dir=tmp_path, **{**SMALL, **keys})
    # Of each of six clients a model of 170 values, with headers and tests: the frozen layer alone has 1,040.
    assert 0 < seen.rounds["bytes_up"].iloc[-1] < 6 * 4 * 1040
    first, *others = seen.models
    assert [tuple(p.shape) for p in first.parameters()] == [(16, 64), (16,), (10, 16), (10,)]
    assert list(first.state_dict()) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert all(other[1].weight is first[1].weight for other in others)  # type: ignore[index]


def test_saved_models_hold_the_frozen_part_once_and_are_whole_where_they_are_used(code: Path) -> None:
    run = florets.run(model="home_models:from_file", strategy="clove", results_dir=code, **SMALL)
    saved, body = load_file(run.folder / "models.safetensors"), torch.load(code / "body.pt")
    names = [f"{k}/3.{name}" for k in (0, 1) for name in ("weight", "bias")]
    assert sorted(saved) == sorted([*names, "1.weight", "1.bias"])
    assert (saved["1.weight"] == body["weight"].numpy()).all()
    # Later the file of the node may be another: the run's own values count.
    torch.save(nn.Linear(64, 16).state_dict(), code / "body.pt")
    loaded = florets.load(run.folder, trust=True)
    assert isinstance(loaded, florets.Run)
    assert torch.equal(loaded.models[1][1].weight, body["weight"])  # type: ignore[index]
    x = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    expected = loaded.models[1](torch.from_numpy(x)).softmax(dim=1).detach().numpy()
    assert np.allclose(loaded.predict(x, model=1).probabilities, expected, atol=1e-5)
    loaded.export(code / "out")
    exported = torch.export.load(code / "out" / "model_1.pt2").module()
    assert torch.allclose(exported(torch.from_numpy(x)).softmax(dim=1), torch.from_numpy(expected), atol=1e-5)
    assert (load_file(code / "out" / "model_0.safetensors")["1.weight"] == body["weight"].numpy()).all()


def test_a_run_goes_on_with_the_frozen_values_that_it_began_with(code: Path) -> None:
    keys = {**SMALL, "model": "home_models:from_file", "strategy": "ifca", "checkpoint_every": 1}
    run = florets.run(results_dir=code, **keys)
    shutil.copyfile(code / "body.pt", code / "kept.pt")
    torch.save(nn.Linear(64, 16).state_dict(), code / "body.pt")
    with pytest.raises(ConfigError, match=r"freezes .requires_grad=False. are not those of"):
        florets.run(resume=run.folder, num_rounds=3, trust=True)
    shutil.copyfile(code / "kept.pt", code / "body.pt")
    assert len(florets.run(resume=run.folder, num_rounds=3, trust=True).rounds) == 3


def test_a_client_that_makes_other_values_is_left_out_by_name(code: Path) -> None:
    with pytest.raises(
        FederationError, match=r"client node .*Refused: the parameters that .* are not those of the server"
    ):
        florets.run(model="home_models:drawn_anew", results_dir=code, **SMALL)
