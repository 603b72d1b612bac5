"""Ditto: personal models beside a global one, which lambda ties together."""

import numpy as np
import pytest

from florets.strategies.ditto.strategy import Ditto
from florets.strategies.shared.messages import TRAIN_BILEVEL
from tests.method_runs import Played, play

DITTO = "strategy=ditto"


def personal(found: Played) -> list[np.ndarray]:
    """Return the bank of the clients' models, and of the global one before them."""
    return list(found.strategy.final_models(found.models).bank)


@pytest.mark.parametrize(
    "more",
    [
        ("strategy.fraction_train=0.5", "train=sgd"),
        pytest.param(("num_rounds=3", "strategy.fraction_train=0.3"), marks=pytest.mark.slow),
    ],
)
def test_without_lambda_it_is_local_only_beside_fedavg_to_the_bit(more: tuple[str, ...]) -> None:
    found = play(DITTO, "strategy.proximal_lambda=0", *more)
    fedavg, local = (play(f"strategy={name}", *more) for name in ("fedavg", "local"))
    entries = len(fedavg.final)
    assert found.final[:entries] == fedavg.final
    trained = {key for report in found.reports for key in report.participants}
    numbers = found.strategy.assignment
    for key, number in local.strategy.assignment.items():
        own = found.final[entries * numbers[key] : entries * (numbers[key] + 1)]
        # A client that never took part stands with the global model.
        alone = local.final[entries * number : entries * (number + 1)]
        assert own == (alone if key in trained else fedavg.final)


@pytest.mark.slow
def test_a_step_of_the_personal_model_is_that_of_the_loss_and_of_the_distance_to_the_global_one() -> None:
    sgd = ("train=sgd", "train.local_steps=1", "train.batch_size=1000", "train.learning_rate=0.1")
    before, after = play(DITTO, *sgd, "num_rounds=1"), play(DITTO, *sgd, "num_rounds=2")
    free = play(DITTO, *sgd, "num_rounds=2", "strategy.proximal_lambda=0")
    # Of round 1 both are the same: the personal models start where the global one does.
    shared, *own = personal(before)
    for mine, tied, plain in zip(own, personal(after)[1:], personal(free)[1:], strict=True):
        assert np.allclose(tied, plain - 0.1 * 1.0 * (mine - shared), atol=1e-6)
        assert not np.allclose(tied, plain, atol=1e-4)


@pytest.mark.slow
def test_the_global_model_does_not_depend_on_lambda_and_who_never_took_part_tests_it() -> None:
    given = (DITTO, "eval_every=1", "train=sgd", "train.local_steps=50", "strategy.fraction_train=0.5")
    tied, free = (play(*given, f"strategy.proximal_lambda={value}") for value in (5, 0))
    assert tied.models.bank.tobytes() == free.models.bank.tobytes()
    seen = {key for report in tied.reports for key in report.participants}
    tests = [found.reports[-1].evaluations for found in (tied, free)]
    assert len(tests[0]) == 6 > len(seen)
    assert {key for key in tests[0] if tests[0][key].loss == tests[1][key].loss} == tests[0].keys() - seen
    far = [
        np.mean([np.linalg.norm(own - found.models.bank) for own in found.strategy.state.personal.vectors.values()])
        for found in (tied, free)
    ]
    assert far[0] < 0.8 * far[1]


@pytest.mark.slow
def test_a_client_whose_reply_was_lost_keeps_its_model() -> None:
    found = play(DITTO, "num_rounds=2", lost={(TRAIN_BILEVEL, 2, 3)})
    earlier = play(DITTO, "num_rounds=1")
    own, before = found.strategy.state.personal.vectors, earlier.strategy.state.personal.vectors
    assert [key for key in own if np.array_equal(own[key], before[key])] == ["3"]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="proximal_lambda=-1"):
        Ditto(proximal_lambda=-1.0)
