"""Loading models into modules and changing modes: as PyTorch does it."""

import pytest
import torch
from torch import nn

from florets.task.models.cnn import cnn
from florets.task.models.mlp import mlp
from florets.task.training.modules import load, named_parameters, normalises, set_mode, state_of
from florets.task.training.modules import parameters as all_parameters


class Restless(nn.Module):
    """A module that keeps its running mean in a new buffer each time, and stays in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(x)
        self.mean = outputs.detach().mean(dim=0)
        return outputs

    def train(self, mode: bool = True) -> "Restless":
        return super().train(False)


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    return module


MODULES = {
    "mlp": lambda: mlp((2, 3), 4, [5]),
    "cnn": lambda: cnn((1, 8, 8), 3, [2, 3], kernel=3, padding=1),
    "batch norm": lambda: mlp((6,), 4, [5], batch_norm=True),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.2)),
    "own": Restless,
    "tied": tied,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_model_is_loaded_as_pytorch_loads_it(name: str) -> None:
    torch.manual_seed(0)
    module, other = MODULES[name](), MODULES[name]()
    for state in (other.state_dict(), {key: value + 1 for key, value in other.state_dict().items()}):
        load(module, state)
        other.load_state_dict(state)
        for key, value in other.state_dict().items():
            assert torch.equal(module.state_dict()[key], value)


@pytest.mark.parametrize("name", MODULES)
def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    module = MODULES[name]()
    state = dict(module.state_dict())
    first = next(iter(state))
    wrong = [{**state, "more": state[first]}, {**state, first: torch.zeros(1)}]
    wrong += [{("x" if key == first else key): value for key, value in state.items()}]
    for other in wrong:
        with pytest.raises(RuntimeError):
            load(module, other)


@pytest.mark.parametrize("name", MODULES)
def test_state_and_parameters_are_read_as_pytorch_reads_them(name: str) -> None:
    module = MODULES[name]()
    state, parameters = module.state_dict(), dict(module.named_parameters(remove_duplicate=False))
    found = state_of(module)
    assert list(found) == list(state)
    assert all(found[key].data_ptr() == value.data_ptr() for key, value in state.items())
    assert [(key, id(value)) for key, value in named_parameters(module).items()] == [
        (key, id(value)) for key, value in parameters.items()
    ]
    assert [id(value) for value in all_parameters(module)] == [id(value) for value in module.parameters()]
    assert normalises(module) == (name == "batch norm")


@pytest.mark.parametrize("name", MODULES)
def test_a_mode_is_changed_as_pytorch_changes_it(name: str) -> None:
    module, other = MODULES[name](), MODULES[name]()
    for training in (True, False, True):
        set_mode(module, training)
        other.train(training)
        assert [part.training for part in module.modules()] == [part.training for part in other.modules()]
    if isinstance(module, nn.Sequential):
        module.append(nn.Linear(2, 2))
        set_mode(module, False)
        assert not module[-1].training
        load(module, {key: value + 1 for key, value in module.state_dict().items()})
