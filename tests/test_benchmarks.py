"""Benchmarks: each can be started, and attacks and their figures by hand."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.bench_attacks import ATTACKS, Sent, hostile_clients
from benchmarks.bench_privacy import ALL, calibrated, hits, inverted, keys_of, likeness
from florets.conf.compose import compose

BENCHMARKS = sorted(path.stem for path in (Path(__file__).parents[1] / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__


def test_hostile_clients_are_spread_over_the_groups() -> None:
    groups = [0] * 5 + [1] * 5 + [2] * 10
    for fraction, counts in ((0.0, [0, 0, 0]), (0.2, [1, 1, 2]), (0.3, [1, 2, 3])):
        for seed in range(3):
            found = sorted(np.bincount([groups[c] for c in hostile_clients(groups, fraction, seed)], minlength=3))
            assert found == counts


def test_lies_are_what_they_are_called() -> None:
    old = np.array([0.0, 7.0])
    own = Sent(0, np.array([1.0, 1.0]), np.array([2.0, 1.0]), old)
    friend = Sent(0, np.array([1.0, 1.0]), np.array([1.0, 3.0]), old)
    other = Sent(1, np.array([5.0, 5.0]), np.array([5.0, 6.0]), old)
    expected = {
        "sign_flip_10": [-9.0, 1.0],
        "update_10": [11.0, 1.0],
        "imitation": [5.0, 6.0],
        "merging": [41.0, 41.0],
        "inner_product_0.5": [1.0, 0.0],
        "replay": [0.0, 7.0],
    }
    for name, vector in expected.items():
        np.testing.assert_allclose(ATTACKS[name].lie(own, [friend, other]), vector)


def test_scores_in_order_are_hit_and_others_are_not() -> None:
    # Of the six pairs of a member and another, five are in order; none of the others may be above the threshold.
    auc, rate = hits(np.array([3.0, 1.0]), np.array([0.0, 0.5, 2.0]))
    assert np.isclose(auc, 5 / 6)
    assert np.isclose(rate, 0.5)


def test_confidence_counts_against_the_models_that_never_saw_the_record() -> None:
    phi = np.array([[5.0, 0.0], [1.0, 0.0], [3.0, 2.0]])
    inside = np.array([[True, False], [False, False], [False, False]])
    scores = calibrated(phi, inside, np.array([0, 1, 2]))
    # Model 0: the others have 1 and 3 (mean 2, deviation 1), and 0 and 2.
    np.testing.assert_allclose(scores[0], [3.0, -1.0])
    # Model 1: of record 0 model 0 saw it, and model 2 has 3.
    assert scores[1, 0] < 0


def test_one_input_is_read_exactly_and_the_only_ones_of_a_unit_are() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    x = torch.rand(1, 6)
    torch.nn.functional.cross_entropy(module(x), torch.tensor([1])).backward()
    weight, bias = (part.grad.double().numpy() for part in list(module.parameters())[:2])
    units = np.column_stack([weight, bias])
    np.testing.assert_allclose(inverted(units, 6, single=True)[0], x[0], rtol=1e-4)
    # A layer without a bias shows the direction: the largest value is 1.
    np.testing.assert_allclose(inverted(weight, 6, single=True)[0], x[0] / x.max(), rtol=1e-4)
    # Unit 0 was moved by the first input alone, unit 1 by both, unit 2 by none.
    a, b = np.array([1.0, 0.0, 2.0]), np.array([0.0, 4.0, 1.0])
    shown = inverted(np.array([[*(3 * a), 3], [*(a + b), 2], [0, 0, 0, 0]]), 3, single=False)
    np.testing.assert_allclose(shown, [a, (a + b) / 2])
    correlation, error, best = likeness(shown, a)
    assert np.isclose(correlation, 1.0)
    assert error == 0
    np.testing.assert_allclose(best, a)


@pytest.mark.parametrize("case", ALL)
def test_keys_of_every_attack_on_privacy_are_those_of_a_run(case: str) -> None:
    compose(keys_of(case))
