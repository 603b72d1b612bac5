"""FedALA: weights of a mixture, what is kept of it, and FedAvg where the weights stay at 1."""

import numpy as np
import pytest
import torch
from torch import nn

from florets.zoo.fedala import learned_weights, mixture
from tests.method_runs import play

ALA = "strategy=fedala"


def weight_after(passes: int) -> float:
    """Return the weight of the mixture of 1 (own) and 3 (global), whose loss is its square by 2."""
    module = nn.Linear(1, 1, bias=False)
    own, shared = ({"weight": torch.full((1, 1), value)} for value in (1.0, 3.0))
    x, y = torch.ones(1, 1), torch.zeros(1)
    start = {"weight": torch.ones(1, 1)}
    given = (module, shared, own, start, x, y, "half_squared_error", np.random.default_rng(0))
    found = learned_weights(*given, rate=0.1, batch_size=2, most_passes=passes)
    assert start["weight"].item() == 1.0
    return found["weight"].item()


def test_weights_follow_the_gradient_and_stay_between_0_and_1() -> None:
    # The mixture is 3, with gradient 3: 1 - 0.1 x 3 x (3 - 1). Then 1.8, and then 1.08, which would be below 0.
    assert [weight_after(passes) for passes in (1, 2, 3)] == pytest.approx([0.4, 0.04, 0.0], abs=1e-6)


def test_a_mixture_is_exact_at_both_ends_and_keeps_the_lower_layers() -> None:
    generator = torch.Generator().manual_seed(0)
    shared = {"0.weight": torch.rand(3, generator=generator), "1.weight": torch.rand(50, generator=generator)}
    shared["1.count"] = torch.tensor(7)
    own = {"1.weight": torch.rand(50, generator=generator), "1.count": torch.tensor(5)}
    for weight, expected in ((1.0, shared), (0.0, own)):
        weights = {name: torch.full(value.shape, weight) for name, value in own.items()}
        found = mixture(shared, own, weights)
        assert torch.equal(found["1.weight"], expected["1.weight"])
        assert (found["0.weight"] is shared["0.weight"], found["1.count"].item()) == (True, 7)


@pytest.mark.slow
@pytest.mark.parametrize("more", [("num_rounds=3",), ("num_rounds=4", "strategy.fraction_train=0.7", "train=sgd")])
def test_with_weights_of_1_it_is_fedavg_to_the_bit(more: tuple[str, ...]) -> None:
    fedavg, found = play(*more, "strategy=fedavg"), play(*more, ALA, "strategy.weight_rate=0")
    entries = len(fedavg.final)
    # The global model, and mixtures that are it.
    assert [found.final[at : at + entries] for at in range(0, 7 * entries, entries)] == [fedavg.final] * 7
    assert found.strategy.state.mixes.data
    evaluations, plain = found.reports[-1].evaluations, fedavg.reports[-1].evaluations
    assert {key: evaluations[key] for key in plain} == plain
    assert play(*more, ALA).final != found.final


@pytest.mark.slow
def test_a_client_mixes_from_its_second_round_on_and_is_better_for_it() -> None:
    given = ("num_rounds=8", "strategy.fraction_train=0.5", "eval_every=1", "train.local_epochs=5")
    found = play(*given, ALA)
    rounds = [key for report in found.reports for key in report.participants]
    twice = {key for key in rounds if rounds.count(key) > 1}
    assert found.strategy.state.mixes.data.keys() == twice
    assert found.strategy.state.upper.data.keys() == set(rounds)
    # The last layer alone: 8 features and a bias for each of 10 classes.
    assert {vector.shape for vector in found.strategy.state.mixes.data.values()} == {(90,)}
    fedavg = play(*given, "strategy=fedavg")
    own, plain = found.reports[-1].evaluations, fedavg.reports[-1].evaluations
    assert np.mean([own[key].loss for key in twice]) < np.mean([plain[key].loss for key in twice])
