"""Moments that no honest client could send: found by hand-computed bounds, refused, counted and said by the key."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from benchmarks.bench_faults import play
from florets.strategies.base.encoding import decode, encode
from florets.strategies.two_phase.messages import MOMENTS, SUBSPACE
from florets.strategies.two_phase.subspace import (
    MOMENT_FACTOR,
    MomentScale,
    factors_size,
    longest_columns,
    orthonormal_columns,
    random_bases,
    term_size,
    weighted_mean,
)
from florets.task.wire import kinds
from tests.mixed_regression import Watched, run

FEW = ("strategy.anchors=5", "num_clients=12", "strategy.moment_rounds=1", "num_rounds=1")


def scaled(by: float) -> object:
    """Change a reply's arrays by a factor."""

    def change(content: RecordDict) -> RecordDict:
        arrays = content.array_records[kinds.ARRAYS]
        content[kinds.ARRAYS] = ArrayRecord({n: Array((a.numpy() * by).astype("float32")) for n, a in arrays.items()})
        return content

    return change


def test_the_size_of_a_term_is_its_largest_value_against_the_longest_column_that_was_multiplied() -> None:
    bases = np.array([[[3.0, 0.0], [4.0, 1.0]], [[0.0, 0.5], [0.0, 0.0]]])
    # Anchor 0: columns of length 5 and 1, so -40 / 5. Anchor 1: lengths 0 and 0.5, so 3 / 0.5.
    term = np.array([[[-40.0, 2.0], [1.0, 0.0]], [[3.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(longest_columns(bases), [5.0, 0.5])
    assert term_size(term, longest_columns(bases)) == 8.0
    assert term_size(term / 10, longest_columns(bases / 10)) == pytest.approx(8.0)
    # Nothing was multiplied: any value is as large as it is.
    assert term_size(np.full((1, 2, 1), 1e30, dtype=np.float32), np.zeros(1)) == pytest.approx(1e30)


def test_the_size_of_factors_is_the_mean_over_pairs_of_the_product_of_their_lengths() -> None:
    # Lengths 5, 1 and 2 at anchor 0, so 2 (5 + 10 + 2) / 6; none at anchor 1.
    left = np.array([[[3.0, -4.0], [0.0, 1.0], [2.0, 0.0]], np.zeros((3, 2))], dtype=np.float32)
    assert factors_size(left, left, all_pairs=True) == pytest.approx(17 / 3)
    # Other lengths on the right, 1, 1 and 3: (5 (1 + 3) + (1 + 3) + 2 (1 + 1)) / 6.
    right = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]], np.zeros((3, 2))], dtype=np.float32)
    assert factors_size(left, right, all_pairs=True) == pytest.approx(28 / 6)
    assert factors_size(left[:, 2:], right[:, 2:], all_pairs=False) == pytest.approx(6.0)
    assert factors_size(np.full((1, 2, 3), 1e38, dtype=np.float32), left[:1, :2, :1], True) < np.inf
    assert factors_size(left[1:], left[1:], all_pairs=True) == 0.0


@pytest.mark.parametrize(("times", "step"), [(100, None), (200, 2)])
def test_iterated_bases_lean_towards_a_client_of_large_gradients_and_show_less_of_the_others(
    times: float, step: int | None
) -> None:
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((20, 2000))
    gradients[7] *= times
    scale, bases, refused = MomentScale(), random_bases(1, 2000, 3, rng), None
    for inner in range(1, 5):
        terms = [np.outer(gradient, gradient @ bases[0])[np.newaxis] for gradient in gradients]
        mask = scale.judge(np.array([term_size(term, longest_columns(bases)) for term in terms]), MOMENT_FACTOR)
        if mask.any() and refused is None:
            refused = inner
            np.testing.assert_array_equal(np.flatnonzero(mask), [7])
        mean = weighted_mean(terms, np.ones(20))
        bases = mean if inner % 2 else orthonormal_columns(mean)
    assert refused == step


def test_moments_are_held_to_the_largest_that_the_median_client_sent_so_far() -> None:
    scale = MomentScale()
    np.testing.assert_array_equal(scale.judge(np.array([1.0, 2.0, 3.0, 21.0]), 10.0), [False, False, False, True])
    assert scale.value == 2.0
    # Most clients' moments vanish: the others' are what they were, and honest.
    np.testing.assert_array_equal(scale.judge(np.array([0.0, 0.0, 20.0, 20.1]), 10.0), [False, False, False, True])
    assert not scale.judge(np.array([1.0, 1e30]), 10.0).any()
    assert not MomentScale().judge(np.array([0.0, 0.0, 1e30]), 10.0).any()
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(scale, arrays), arrays) == scale


@pytest.mark.parametrize(("mode", "kind", "times"), [("iteration", SUBSPACE, 4), ("direct", MOMENTS, 1)])
def test_a_client_of_huge_moments_is_refused_and_named_and_leaves_no_trace(
    mode: str, kind: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="florets")
    settings = (*FEW, f"strategy.subspace={mode}")
    found = run(*settings, watched=Watched({(kind, 1, 7): scaled(1e12)}))  # type: ignore[dict-item]
    assert found.reports[0].replies["invalid"] == times
    assert (
        "client 07 sent an invalid reply: rejected as an outlier: its moments are far larger than the others'"
        in caplog.text
    )

    def lost(_: RecordDict) -> RecordDict:
        raise RuntimeError("lost")

    without = run(*settings, watched=Watched({(kind, 1, 7): lost}))
    assert [bank.tobytes() for bank in found.banks] == [bank.tobytes() for bank in without.banks]


@pytest.mark.parametrize(("mode", "kind", "factor"), [("iteration", SUBSPACE, 1e4), ("direct", MOMENTS, 99)])
def test_a_client_of_a_hundred_times_the_others_gradients_is_heard(mode: str, kind: str, factor: float) -> None:
    found = run(*FEW, f"strategy.subspace={mode}", watched=Watched({(kind, 1, 7): scaled(factor)}))  # type: ignore[dict-item]
    assert found.reports[0].replies["invalid"] == 0


@pytest.mark.parametrize("pairing", ["all", "halves"])
def test_a_client_with_one_example_of_a_huge_gradient_is_heard(pairing: str) -> None:
    def outlier(content: RecordDict) -> RecordDict:
        arrays = {name: array.numpy().copy() for name, array in content.array_records[kinds.ARRAYS].items()}
        # Of the means of the two halves it is the left one.
        arrays[kinds.LEFT][:, 0] *= 1e5
        content[kinds.ARRAYS] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        return content

    settings = (*FEW, "strategy.subspace=direct", f"strategy.pairing={pairing}")
    found = run(*settings, watched=Watched({(MOMENTS, 1, 7): outlier}))
    assert found.reports[0].replies["invalid"] == 0


@pytest.mark.parametrize("fault", ["huge weights (1e30)", "huge weights (1e6)"])
@pytest.mark.slow
def test_a_fifth_of_faulty_clients_does_not_keep_two_phase_from_the_groups(fault: str) -> None:
    small = ("num_rounds=2", "strategy.moment_rounds=2", "strategy.inner_steps=2", "task.model_options.hidden=[]")
    outcome = play("two_phase", fault, seed=0, more=small)
    assert (outcome.rounds, outcome.ari, outcome.sound, outcome.error) == (4, 1.0, True, "")
