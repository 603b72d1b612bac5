"""The hostile clients of `benchmarks.bench_attacks`."""

import numpy as np

from benchmarks.bench_attacks import ATTACKS, Sent, hostile_clients


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
