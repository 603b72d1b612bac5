"""FedProto: means of features, the term towards them, and Local-only where it counts nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from florets.task.training.features import NearPrototypes, features, head_inputs
from florets.task.training.objective import Batch
from florets.task.wire import kinds
from florets.zoo.fedproto import TRAIN_PROTOTYPES
from florets.zoo.shared.prototypes import global_prototypes
from tests.method_runs import play

PROTO = "strategy=fedproto"


def test_global_prototypes_are_means_weighted_by_samples_over_those_who_have_the_class() -> None:
    one, other = np.array([[1.0, 2.0], [9.0, 9.0], [4.0, 0.0]]), np.array([[5.0, 6.0], [9.0, 9.0], [7.0, 7.0]])
    found, classes = global_prototypes([one, other], [np.array([3, 0, 2]), np.array([1, 0, 0])])
    assert classes.tolist() == [0, 2]
    assert found.tolist() == [[2.0, 3.0], [4.0, 0.0]]


def test_the_term_is_the_mean_square_of_what_samples_with_a_prototype_are_away() -> None:
    body, head = nn.Linear(2, 2, bias=False), nn.Linear(2, 3)
    nn.init.eye_(body.weight)
    module = nn.Sequential(body, head)
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1])
    with head_inputs(module) as found:
        term = NearPrototypes(0.5, torch.tensor([[2.0, 4.0]]), torch.tensor([1]), 3, found)
        outputs = module(x)
        value = term.value(Batch(module, x, y, outputs))
        # The second sample alone: ((3 - 2)^2 + (4 - 4)^2) / (2 samples x 2 entries), times lambda.
        assert value.item() == pytest.approx(0.5 * 1.0 / 4)
        value.backward()
        assert body.weight.grad is not None
        assert body.weight.grad.tolist() == [[0.75, 1.0], [0.0, 0.0]]
        # Each pass is taken once.
        with pytest.raises(ValueError, match="never calls its head"):
            term.value(Batch(module, x, y, outputs))
    np.testing.assert_array_equal(features(module, x), x.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("more", [("num_rounds=3",), ("num_rounds=4", "strategy.fraction_train=0.3", "train=sgd")])
def test_with_lambda_0_it_is_local_only_to_the_bit(more: tuple[str, ...]) -> None:
    local, free = play(*more, "strategy=local"), play(*more, PROTO, "strategy.prototype_lambda=0")
    assert free.final == local.final
    assert free.strategy.assignment == local.strategy.assignment
    assert free.reports[-1].evaluations == local.reports[-1].evaluations
    assert play(*more, PROTO).final != local.final


@pytest.mark.slow
def test_who_is_away_stays_in_the_means_and_a_lost_reply_changes_nothing_of_its_client() -> None:
    found = play(PROTO, "num_rounds=2", lost={(TRAIN_PROTOTYPES, 2, 4)})
    before = play(PROTO, "num_rounds=1").strategy.state
    after = found.strategy.state
    same = [key for key in after.prototypes if np.array_equal(after.prototypes[key], before.prototypes[key])]
    assert same == ["4"]
    assert np.array_equal(after.personal.data["4"], before.personal.vectors["4"])
    found_records = found.strategy._prototypes()[kinds.PROTOTYPES]
    means, classes = global_prototypes(list(after.prototypes.values()), list(after.counts.values()))
    assert "4" in after.prototypes
    np.testing.assert_array_equal(found_records[kinds.CLASSES].numpy(), classes)
    np.testing.assert_allclose(found_records[kinds.PROTOTYPES].numpy(), means, rtol=1e-6)
    # One pair of digits for each group of three clients.
    assert [sorted(np.flatnonzero(after.counts[key])) for key in ("0", "5")] == [[0, 1], [2, 3]]
