"""Benchmarks: each in small, and attacks and their figures by hand."""

import logging
import re
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch

from benchmarks import bench_attacks, bench_privacy, bench_speed
from benchmarks.bench_attacks import ATTACKS, Sent, hostile_clients
from benchmarks.bench_privacy import ALL, calibrated, hits, inverted, keys_of, likeness
from florets.conf.compose import compose
from florets.task.training.modules import torch_random


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[..., str]:
    """Return a function that starts a benchmark with words of a command line, and returns what it printed."""

    def start(benchmark: ModuleType, *words: str) -> str:
        monkeypatch.setattr("sys.argv", ["benchmark", *words])
        with caplog.at_level(logging.ERROR, "florets"):  # The level is as before at the end.
            benchmark.main()
        return capsys.readouterr().out

    return start


def test_lies_end_the_groups_unless_a_robust_rule_averages(said: Callable[..., str]) -> None:
    few = "rotation+num_clients=8+num_rounds=3+task.num_clusters=2+k=2"
    attacks = "none,sign_flip_10,replay,backdoor_5,lying_losses"
    grid = ("--strategies", "ifca", "--attacks", attacks, "--fractions", "0,0.25", "--rules", "none,median")
    lines = said(bench_attacks, "--federations", few, *grid, "--seeds", "1").splitlines()
    cells = {line.split(" 0.")[0].split()[-1]: re.findall(r"([\d.]+) ± 0.0 / (\S+)", line) for line in lines[2:]}
    assert list(cells) == attacks.split(",")
    for attack, (plain, robust) in cells.items():
        assert float(robust[0]) > 70, attack
        assert robust[1] == "1.00", attack
        assert (plain[1] == "1.00") == (attack in ("none", "replay")), attack


def test_inputs_are_read_from_gradients_unless_noise_or_masks_hide_them(said: Callable[..., str]) -> None:
    one, noised = (f"clients of 1|fedavg+averaging=gradients|{noise}" for noise in ("none", "local:8"))
    many, masked = "groups of 2 x 30|clove+num_rounds=2|none", "clients of 1|fedavg|secure"
    text = said(bench_privacy, "--seeds", "2", "--cases", one, noised, masked, many)
    assert re.findall(r"exact +(\d\.\d+)", text) == ["1.000", "0.000", "0.000"]
    # Who was trained on is told from others better than by chance, and better with all records of a client.
    areas = [float(area) for area in re.findall(r"AUC +(\d\.\d+)", text)]
    assert all(0.6 < area < 1 for area in areas)
    assert max(areas) == areas[2]


def test_a_round_is_timed_in_blocks_by_client_and_bare(
    said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_speed, "in_own_process", lambda _, __, *case: bench_speed.rounds(*case))
    monkeypatch.setattr(bench_speed, "DIGITS", ["num_clients=4", "task.model_options.hidden=[4]"])
    lines = said(bench_speed, "--repeats", "1").splitlines()
    assert [line.split(": ")[1].split()[0] for line in lines[1:]] == ["bare", "off", "auto"]
    assert all(float(line.split()[-2]) > 0 for line in lines[1:])


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
    with torch_random(np.random.default_rng(0)):
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
