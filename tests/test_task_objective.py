"""Objectives of local training: terms beside the loss, its length, frozen layers."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from florets.task.layers import body_and_head, frozen_layers, with_head
from florets.task.models import autoencoder, cnn, linear, mlp
from florets.task.training.loop import gradient, train
from florets.task.training.objective import PLAIN, Batch, Objective, Proximal, Term, class_weights
from florets.task.training.settings import Training
from tests.own_functions import net

X, Y = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
SGD = Training(0.1, 1, 4, "sgd")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return net((1, 8, 8), 3)  # type: ignore[return-value]


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def trained(settings: Training = SGD, objective: Objective = PLAIN) -> dict[str, Tensor]:
    module = model()
    train(module, X, Y, "cross_entropy", settings, rng(), objective)
    return values(module)


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


class Ridge(Term):
    """mu/2 ||theta||^2, by a graph."""

    def __init__(self, mu: float) -> None:
        self.mu = mu

    def value(self, batch: Batch) -> Tensor:
        assert batch.outputs.shape == (len(batch.x), 3) == (len(batch.y), 3)
        return self.mu / 2 * sum(p.square().sum() for p in batch.module.parameters())  # type: ignore[return-value]


def test_a_term_with_a_graph_does_as_the_optimisers_own_penalty() -> None:
    decayed = trained(Training(0.1, 2, 4, "sgd", weight_decay=0.3))
    ridge = trained(Training(0.1, 2, 4, "sgd"), Objective((Ridge(0.3),)))
    for name, value in decayed.items():
        torch.testing.assert_close(ridge[name], value)


def test_a_gradient_has_the_terms_once_whatever_the_chunk() -> None:
    module = mlp((1, 8, 8), 3)
    plain, _ = gradient(module, X, Y, "cross_entropy", None, rng())
    for chunk in (3, 100):
        objective = Objective((Ridge(0.5),))
        found, _ = gradient(module, X, Y, "cross_entropy", None, rng(), chunk=chunk, objective=objective)
        for name, value in module.state_dict().items():
            np.testing.assert_allclose(found[name], plain[name] + 0.5 * value.numpy(), atol=1e-6)


def test_weights_of_one_change_nothing_and_a_weight_of_zero_leaves_a_sample_out() -> None:
    assert equal(trained(objective=Objective(weights=torch.ones(10))), trained())
    module, weights = mlp((1, 8, 8), 3), torch.ones(10)
    weights[7:] = 0
    found, loss = gradient(module, X, Y, "cross_entropy", None, rng(), objective=Objective(weights=weights))
    first, _ = gradient(module, X[:7], Y[:7], "cross_entropy", None, rng())
    for name in first:
        np.testing.assert_allclose(found[name], first[name] * 0.7, atol=1e-6)
    assert loss == gradient(module, X, Y, "cross_entropy", None, rng())[1]


def test_class_weights_by_hand() -> None:
    labels = torch.tensor([0, 0, 0, 0, 2])
    # Two classes are there: each sample of n = 5 counts n / (2 n_c).
    torch.testing.assert_close(class_weights(labels, "balanced"), torch.tensor([0.625] * 4 + [2.5]))
    # 1/2 four times and 1, over their mean 3/5.
    torch.testing.assert_close(class_weights(labels, "root"), torch.tensor([5 / 6] * 4 + [5 / 3]))
    with pytest.raises(ValueError, match="class_weights='both' must be"):
        class_weights(labels, "both")  # type: ignore[arg-type]


def test_frozen_layers_stay_with_their_statistics_and_can_be_trained_again() -> None:
    module = model()
    before = values(module)
    train(module, X, Y, "cross_entropy", SGD, rng(), Objective(frozen=("1", "2")))
    after = values(module)
    assert all(torch.equal(after[name], before[name]) == name.startswith(("1.", "2.")) for name in after)
    assert all(parameter.requires_grad for parameter in module.parameters())
    zeros, _ = gradient(module, X, Y, "cross_entropy", None, rng(), objective=Objective(frozen=("4",)))
    assert not zeros["4.weight"].any()
    assert zeros["1.weight"].any()


@pytest.mark.parametrize(("frozen", "message"), [(("9",), "no layer is called '9'"), (("1", "2", "4"), "nothing to")])
def test_layers_that_cannot_be_frozen_are_named(frozen: tuple[str, ...], message: str) -> None:
    module = model()
    with pytest.raises(ValueError, match=message), frozen_layers(module, frozen):
        pass
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_closed_forms_know_the_proximal_term_alone() -> None:
    assert PLAIN.proximal_mu == 0
    assert Objective((Proximal(0.5),)).proximal_mu == 0.5
    others = (Objective((Ridge(1.0),)), Objective(frozen=("1",)), Objective((Proximal(1.0), Proximal(1.0))))
    assert [other.proximal_mu for other in others] == [None, None, None]
    with pytest.raises(ValueError, match=r"proximal_mu=-1\.0 must be above 0"):
        Proximal(-1.0)


@pytest.mark.parametrize(
    ("epochs", "steps", "expected"),
    [(1, 0, 3), (2, 0, 6), (0.5, 0, 2), (0.01, 0, 1), (1.5, 0, 5), (1, 7, 7), (9, 1, 1)],
)
def test_local_work_in_steps_or_fractions_of_an_epoch(epochs: float, steps: int, expected: int) -> None:
    """Ten samples in batches of four: an epoch has three steps, each of which batch normalisation counts."""
    after = trained(Training(0.1, epochs, 4, "sgd", local_steps=steps))
    assert after["2.num_batches_tracked"].item() == expected


def test_steps_go_through_the_same_batches_as_epochs() -> None:
    assert equal(trained(Training(0.1, 2, 4)), trained(Training(0.1, 1, 4, local_steps=6)))
    module = model()
    loss = train(module, X, Y, "cross_entropy", Training(0.1, 0.3, 4, "sgd"), rng())
    first = copy.deepcopy(model()).train()
    draws = rng()
    draws.integers(2**63 - 1)  # what seeds dropout
    rows = torch.from_numpy(draws.permutation(10))[:4]
    assert loss == pytest.approx(nn.functional.cross_entropy(first(X[rows]), Y[rows]).item())


@pytest.mark.parametrize(
    ("module", "body", "head"),
    [
        (mlp((1, 8, 8), 10), ("1",), ("3",)),
        (mlp((1, 8, 8), 10, hidden=[8, 8]), ("1", "3"), ("5",)),
        (linear((1, 8, 8), 10), (), ("1",)),
        (cnn((1, 8, 8), 10, kernel=3, padding=1), ("convolutions.0", "convolutions.1"), ("linear",)),
        (autoencoder((1, 8, 8), 10), ("1", "3", "5", "6", "8"), ("10",)),
    ],
)
def test_built_in_models_say_which_layers_are_their_head(
    module: nn.Module, body: tuple[str, ...], head: tuple[str, ...]
) -> None:
    assert body_and_head(module) == (body, head)


def test_an_own_model_names_its_head_or_is_asked_to() -> None:
    assert body_and_head(model(), ["4"]) == (("1", "2"), ("4",))
    assert body_and_head(with_head(model(), "2", "4")) == (("1",), ("2", "4"))
    with pytest.raises(ValueError, match=r"does not say which layers are its head: give .* as task.head_layers"):
        body_and_head(model())
    with pytest.raises(ValueError, match="no layer is called '3'"):
        body_and_head(model(), ["3"])


def test_a_layer_that_holds_the_head_beside_entries_of_its_own_is_told_by_entries() -> None:
    outer = nn.Linear(2, 2)
    outer.add_module("top", nn.Linear(2, 2))
    assert body_and_head(nn.Sequential(outer), ["0.top"]) == (("0.weight", "0.bias"), ("0.top",))
