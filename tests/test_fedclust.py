"""FedClust: the last layer goes up, and groups the clients."""

import numpy as np
import pytest

from florets.task.wire import kinds
from tests.method_runs import play


def test_the_last_layer_alone_goes_up_and_finds_the_groups() -> None:
    found = play("strategy=fedclust")
    assert found.ari == 1.0
    # 10 classes of 8 hidden units, and their biases; the whole model has 64 * 8 + 8 more.
    assert {len(vector) for vector in found.strategy.state.descriptions.values()} == {90}
    one_model = found.reports[1].bytes_up
    assert found.reports[0].bytes_up < 1.5 * one_model
    assert [report.phase for report in found.reports] == ["clustering", "stable"]


def test_other_layers_can_be_compared() -> None:
    found = play("strategy=fedclust", "strategy.layers=[1]", "strategy.estimate_epochs=3", "train.local_steps=1")
    assert {len(vector) for vector in found.strategy.state.descriptions.values()} == {64 * 8 + 8}
    with pytest.raises(ValueError, match="no layer of the model is called 'last'"):
        play("strategy=fedclust", "strategy.layers=[last]")


def test_a_later_client_is_compared_at_the_learning_rate_of_the_first_round() -> None:
    falling = ("train.schedule=exponential", "train.schedule_factor=0.01")
    late = play("strategy=fedclust", *falling, lost={(kinds.TRAIN_ESTIMATE, 1, 3)})
    assert late.ari == 1.0
    steady = play("strategy=fedclust", lost={(kinds.TRAIN_ESTIMATE, 1, 3)})
    found, expected = (run.strategy.state.descriptions["3"] for run in (late, steady))
    np.testing.assert_array_equal(found, expected)


def test_a_late_layer_with_values_beyond_reason_is_refused_though_it_comes_alone() -> None:
    place = (kinds.TRAIN_ESTIMATE, 2, 3)
    refused = play("strategy=fedclust", "num_rounds=3", lost={(kinds.TRAIN_ESTIMATE, 1, 3)}, huge={place})
    assert "3" not in refused.reports[1].assignment
    assert refused.reports[1].replies["invalid"] == 1
    # It is asked again, and as good as any.
    assert refused.ari == 1.0
