"""Local training: losses, gradients, objectives and modules against plain PyTorch, by hand and to the bit."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from florets.task.layers import body_and_head, with_head
from florets.task.models.cnn import cnn
from florets.task.models.mlp import linear, mlp
from florets.task.training.linear import LinearModels, flat, linear_losses, linear_names, linear_test, linear_update
from florets.task.training.loop import gradient, train
from florets.task.training.losses import evaluate, evaluated, loss_vector, mean_loss, per_sample_losses
from florets.task.training.modules import torch_random
from florets.task.training.objective import PLAIN, Batch, Objective, Proximal, Term
from florets.task.training.settings import Training
from tests.own_functions import net

SGD = Training(learning_rate=0.1, local_epochs=1, batch_size=4, optimizer="sgd")


@pytest.fixture(autouse=True)
def seeded():
    with torch_random(np.random.default_rng(0)):
        yield


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture
def samples():
    draws = rng(3)
    return torch.from_numpy(draws.random((10, 6), dtype=np.float32)), torch.from_numpy(draws.integers(3, size=10))


OPTIM = torch.optim


@pytest.mark.parametrize(
    ("training", "theirs"),
    [
        (SGD, lambda p: OPTIM.SGD(p, 0.1)),
        (Training(0.1, 3, 4, "sgd", 0.9, 0.01), lambda p: OPTIM.SGD(p, 0.1, 0.9, weight_decay=0.01)),
        (Training(0.01, 2, 4, "adam"), lambda p: OPTIM.Adam(p, 0.01)),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_training_is_a_plain_loop_of_pytorchs(samples, training, theirs):
    x, y = samples
    module = mlp((6,), 3, [5])
    plain = copy.deepcopy(module)
    optimizer, draws = theirs(plain.parameters()), rng(1)
    draws.integers(2**63 - 1)  # what seeds dropout
    for _ in range(int(training.local_epochs)):
        seen = []
        for rows in torch.from_numpy(draws.permutation(10)).split(training.batch_size):
            optimizer.zero_grad()
            losses = F.cross_entropy(plain(x[rows]), y[rows], reduction="none")
            seen += losses.tolist()
            losses.mean().backward()
            optimizer.step()
    loss = train(module, x, y, "cross_entropy", training, rng(1))
    assert loss == pytest.approx(np.mean(seen), rel=1e-5)
    for ours, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


def test_a_step_of_the_proximal_term_by_hand():
    # One sample, x = 1, y = 0: the data gradient at theta is 2 theta; the proximal one is mu (theta - theta_start).
    module = linear((1,), 1)
    with torch.no_grad():
        module[1].weight.fill_(1.0)
    x, y = torch.ones(1, 1), torch.zeros(1)
    settings = Training(0.1, 2, 1, "sgd")
    loss = train(module, x, y, "squared_error", settings, rng(), Objective((Proximal(0.5),)))
    first = 1 - 0.1 * 2
    second = first - 0.1 * (2 * first + 0.5 * (first - 1))
    assert module[1].weight.item() == pytest.approx(second, rel=1e-6)
    assert loss == pytest.approx(first**2, rel=1e-6)


def test_the_full_gradient_is_that_of_the_mean_loss_whatever_the_chunk():
    draws = rng(2)
    x = torch.from_numpy(draws.random((11, 1, 12, 12), dtype=np.float32))
    y = torch.from_numpy(draws.integers(3, size=11))
    module = cnn((1, 12, 12), 3, kernel=3)
    F.cross_entropy(module(x), y).backward()
    expected = {name: p.grad.numpy().copy() for name, p in module.named_parameters()}
    for chunk in (4, 500):
        found, mean = gradient(module, x, y, "cross_entropy", None, rng(), chunk=chunk)
        assert mean == pytest.approx(mean_loss(module, x, y, "cross_entropy"), rel=1e-6)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)
    assert all(p.grad is None for p in module.parameters())


def test_a_stochastic_gradient_is_that_of_drawn_samples(samples):
    x, y = samples
    module = mlp((6,), 3)
    found, _ = gradient(module, x, y, "cross_entropy", 4, rng(7))
    drawn = torch.from_numpy(rng(7).choice(10, size=4, replace=False))
    expected, _ = gradient(module, x[drawn], y[drawn], "cross_entropy", None, rng())
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    whole, _ = gradient(module, x, y, "cross_entropy", 10, rng(7))
    np.testing.assert_array_equal(
        whole["1.weight"], gradient(module, x, y, "cross_entropy", None, rng())[0]["1.weight"]
    )


X, Y = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


def model() -> nn.Sequential:
    with torch_random(np.random.default_rng(0)):
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


def test_weights_of_one_change_nothing_and_a_weight_of_zero_leaves_a_sample_out() -> None:
    assert equal(trained(objective=Objective(weights=torch.ones(10))), trained())
    module, weights = mlp((1, 8, 8), 3), torch.ones(10)
    weights[7:] = 0
    found, loss = gradient(module, X, Y, "cross_entropy", None, rng(), objective=Objective(weights=weights))
    first, _ = gradient(module, X[:7], Y[:7], "cross_entropy", None, rng())
    for name in first:
        np.testing.assert_allclose(found[name], first[name] * 0.7, atol=1e-6)
    assert loss == gradient(module, X, Y, "cross_entropy", None, rng())[1]


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


@pytest.mark.parametrize(
    ("epochs", "steps", "expected"),
    [(1, 0, 3), (2, 0, 6), (0.5, 0, 2), (0.01, 0, 1), (1.5, 0, 5), (1, 7, 7), (9, 1, 1)],
)
def test_local_work_in_steps_or_fractions_of_an_epoch(epochs: float, steps: int, expected: int) -> None:
    """Ten samples in batches of four: an epoch has three steps, each of which batch normalisation counts."""
    after = trained(Training(0.1, epochs, 4, "sgd", local_steps=steps))
    assert after["2.num_batches_tracked"].item() == expected


def test_an_own_model_names_its_head_or_is_asked_to() -> None:
    assert body_and_head(model(), ["4"]) == (("1", "2"), ("4",))
    assert body_and_head(with_head(model(), "2", "4")) == (("1",), ("2", "4"))
    with pytest.raises(ValueError, match=r"does not say which layers are its head: set task.head_layers"):
        body_and_head(model())
    with pytest.raises(ValueError, match="no layer is called '3'"):
        body_and_head(model(), ["3"])


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_losses_of_models_are_means_over_samples_whatever_the_chunk():
    module, x, y = cnn((1, 12, 12), 3, kernel=3), random(23, 1, 12, 12), torch.arange(23) % 3
    states = [{name: value * scale for name, value in module.state_dict().items()} for scale in (1.0, 0.5, 2.0)]
    expected = []
    for state in states:
        module.load_state_dict(state)
        expected.append(per_sample_losses(module.eval()(x), y, "cross_entropy").mean().item())
        assert mean_loss(module, x, y, "cross_entropy", 7) == pytest.approx(expected[-1], rel=1e-5)
    vector = loss_vector(module, iter(states), x, y, "cross_entropy")
    assert vector.dtype == np.float64
    np.testing.assert_allclose(vector, expected, rtol=1e-5)


def test_losses_by_hand():
    x = torch.tensor([[1.0], [2.0]])
    outputs = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    losses = per_sample_losses(outputs, torch.tensor([0, 1]), "cross_entropy")
    np.testing.assert_allclose(losses, [math.log(4), math.log(2)], rtol=1e-6)
    assert per_sample_losses(x, torch.tensor([3.0, 2.5]), "squared_error").tolist() == [4.0, 0.25]
    rebuilt = per_sample_losses(torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), "reconstruction")
    assert rebuilt.tolist() == [2.5]


def test_accuracy_is_the_share_of_largest_outputs_and_there_is_none_without_classes():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    loss, accuracy = evaluate(nn.Identity(), x, torch.tensor([0, 1, 1, 1]), "cross_entropy", chunk=3)
    assert accuracy == 0.75
    assert loss == pytest.approx(mean_loss(nn.Identity(), x, torch.tensor([0, 1, 1, 1]), "cross_entropy"))
    assert evaluate(nn.Identity(), x, torch.zeros(4), "reconstruction") == (0.0, None)


LINEAR_LOSSES = ["squared_error", "half_squared_error", "cross_entropy"]


def example(loss, bias, n=7):
    outputs = 4 if loss == "cross_entropy" else 1
    with torch_random(np.random.default_rng(3)):
        modules = [linear((1, 2, 3), outputs, bias=bias) for _ in range(3)]
        x = torch.randn(n, 1, 2, 3)
        y = torch.randint(outputs, (n,)) if outputs > 1 else torch.randn(n)
    names = linear_names(modules[0], loss)
    states = [{name: value.numpy() for name, value in module.state_dict().items()} for module in modules]
    return modules, x, y, names, LinearModels.of(states, names)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", LINEAR_LOSSES)
def test_losses_and_test_results_are_those_of_torch(loss, bias):
    modules, x, y, _, models = example(loss, bias)
    expected = loss_vector(linear((1, 2, 3), models.weight.shape[1], bias=bias), map(state, modules), x, y, loss)
    np.testing.assert_allclose(linear_losses(models, *flat(x, y), loss), expected, rtol=1e-6)
    mean, accuracy = evaluate(modules[0], x, y, loss)
    found = linear_test(models, *flat(x, y), loss)
    assert (found.loss, found.accuracy) == (pytest.approx(mean, rel=1e-6), accuracy)
    assert found.scores == pytest.approx(evaluated(modules[0], x, y, loss).scores, rel=1e-4)


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", LINEAR_LOSSES)
def test_full_batch_steps_are_those_of_torch(loss, bias, mu):
    modules, x, y, names, _ = example(loss, bias)
    settings = Training(0.1, 5, 7, "sgd")
    objective = Objective((Proximal(mu),)) if mu else PLAIN
    start = {name: value.numpy().copy() for name, value in state(modules[1]).items()}
    before = start[names.weight].copy()
    arrays, mean = linear_update(names, start, *flat(x, y), loss, settings, mu)
    expected = train(modules[1], x, y, loss, settings, np.random.default_rng(0), objective)
    assert len(arrays) == 1 + bias
    for name, value in state(modules[1]).items():
        np.testing.assert_allclose(arrays[name], value, rtol=1e-5, atol=1e-7)
        assert arrays[name].dtype == np.float32
    assert mean == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(start[names.weight], before)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(2, 1),
        nn.Sequential(nn.Flatten(), nn.Linear(2, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(2, 1).requires_grad_(False)),
    ],
)
def test_other_models_than_plain_linear_ones_take_the_torch_path(module):
    assert linear_names(module, "squared_error") is None


def state(module):
    return module.state_dict()
