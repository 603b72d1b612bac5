"""Per-FedAvg: steps by the gradient after an adaptation, and tests after one."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from florets.conf.compose import compose
from florets.server_app.build import build_task
from florets.task.training.loop import gradient, train
from florets.task.training.losses import counted
from florets.task.training.modules import torch_random
from florets.task.training.objective import Objective
from florets.task.training.settings import Training
from florets.zoo.per_fedavg import Adaptation
from tests.method_runs import SMALL, play
from tests.own_functions import net

PER = "strategy=per_fedavg"
X, Y = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("exact", "passes"), [(False, 4), (True, 8)])
def test_a_step_is_that_of_the_hand_computed_gradient(exact: bool, passes: int) -> None:
    # L(w) = a/2 w^2 - b w + c, with a = mean x^2 = 5 and b = mean x y = 6.
    x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([3.0, 3.0])
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 2.0)
    term = Adaptation(0.1, x, y, "half_squared_error", Training(batch_size=9), rng(), exact)
    with counted() as effort:
        train(module, x, y, "half_squared_error", Training(0.5, 1, 9, "sgd"), rng(), Objective(terms=(term,)))
    # g(2) = 4, so that the gradient is taken at 1.6: g(1.6) = 2. Its Hessian factor is 1 - 0.1 x 5.
    expected = 2 - 0.5 * 2.0 * (0.5 if exact else 1)
    assert module.weight.item() == pytest.approx(expected, abs=1e-6)
    assert effort.gradients == passes


@pytest.mark.slow
def test_the_exact_gradient_is_that_of_the_loss_after_the_adaptation() -> None:
    def model() -> nn.Module:
        with torch_random(rng()):
            return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3))

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        outputs = functional_call(model(), parameters, (X,))
        return nn.functional.cross_entropy(outputs, Y)

    start = {name: p.detach().requires_grad_() for name, p in model().named_parameters()}
    inner = torch.autograd.grad(loss(start), list(start.values()), create_graph=True)
    ahead = {name: p - 0.7 * g for (name, p), g in zip(start.items(), inner, strict=True)}
    outer = torch.autograd.grad(loss(ahead), list(start.values()))
    module = model()
    term = Adaptation(0.7, X, Y, "cross_entropy", Training(batch_size=10), rng(), exact=True)
    settings = Training(0.2, 1, 10, "sgd")
    train(module, X, Y, "cross_entropy", settings, rng(), Objective((term,)))
    for (name, p), g in zip(start.items(), outer, strict=True):
        torch.testing.assert_close(module.get_parameter(name).detach(), p.detach() - 0.2 * g)


@pytest.mark.parametrize("exact", [False, True])
def test_with_alpha_0_training_is_the_plain_one_to_the_bit(exact: bool) -> None:
    """With batch normalisation and dropout, whose statistics and draws are those of the steps' own batches."""
    found = []
    for terms in ((), (Adaptation(0.0, X, Y, "cross_entropy", Training(batch_size=4), rng(1), exact),)):
        with torch_random(rng()):
            module = nn.Sequential(net((1, 8, 8), 6), nn.Dropout(0.5), nn.Linear(6, 3))
        settings = Training(0.1, 2, 4, "sgd", momentum=0.9, weight_decay=0.01)
        train(module, X, Y, "cross_entropy", settings, rng(), Objective(terms=terms))
        found.append(module.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.slow
@pytest.mark.parametrize("more", [("eval_every=1",), ("strategy.fraction_train=0.3", "num_rounds=4")])
def test_with_alpha_0_it_is_fedavg_to_the_bit(more: tuple[str, ...]) -> None:
    fedavg, alike = play(*more, "strategy=fedavg"), play(*more, PER, "strategy.alpha=0")
    assert alike.final == fedavg.final
    assert alike.reports[-1].evaluations == fedavg.reports[-1].evaluations
    assert play(*more, PER, "strategy.alpha=0.1").final != fedavg.final
    # FedAvg and one step before the test.
    stepped = play(*more, PER, "strategy.alpha=0", "strategy.test_alpha=0.1")
    assert stepped.final == fedavg.final
    assert stepped.reports[-1].evaluations != fedavg.reports[-1].evaluations


@pytest.mark.slow
def test_a_clients_result_is_that_after_one_step_on_its_training_data() -> None:
    given = (PER, "strategy.test_alpha=0.3", "train=sgd")
    found, task = play(*given, "fine_tune_epochs=1"), build_task(compose([*SMALL, *given]))
    state = {name: torch.from_numpy(array.numpy()) for name, array in found.models.one(0).items()}
    for key, result in found.reports[-1].evaluations.items():
        data, module = task.client(int(key)), task.build_model()
        module.load_state_dict(state)
        taken, _ = gradient(module, data.x_train, data.y_train, "cross_entropy", None, rng())
        module.load_state_dict({name: value - 0.3 * torch.from_numpy(taken[name]) for name, value in state.items()})
        with torch.no_grad():
            loss = nn.functional.cross_entropy(module.eval()(data.x_test), data.y_test).item()
        assert result.loss == pytest.approx(loss, abs=1e-6)
        assert result.tuned is not None
        assert result.tuned.loss < result.loss
