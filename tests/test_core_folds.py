"""Discovery from fold updates: the score, the test, the choice of K, placement, sharpness."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from florets.strategies.core import FloatArray, IntArray, fold_scores
from florets.strategies.core import folds as core
from florets.strategies.core.cluster import canonical, cut
from florets.strategies.core.fold_scores import centred_rows
from florets.strategies.core.placement import centres, place
from florets.strategies.core.sharpness import is_sharp, spread


# The search
def planted(sizes: list[int], seed: int, signal: float = 1.0, width: int = 60, folds: int = 4) -> FloatArray:
    """Groups of clients around centres of length `signal`; noise of about unit length in every row."""
    rng = np.random.default_rng(seed)
    means = signal * rng.standard_normal((len(sizes), width)) / np.sqrt(width)
    noise = rng.standard_normal((sum(sizes), folds, width)) / np.sqrt(width)
    return np.repeat(means, sizes, axis=0)[:, None] + noise


def truth(sizes: list[int]) -> IntArray:
    return np.repeat(np.arange(len(sizes)), sizes)


def naive_scores(folds: FloatArray, method: str) -> list[float]:
    """The definition, word for word: no Gram matrix, one clustering for each fold and number of groups."""
    clients, num_folds, _ = folds.shape
    units = folds / np.linalg.norm(folds, axis=2, keepdims=True)
    rows = units - units.mean(axis=0)
    found = []
    for k in range(2, clients + 1):
        total = 0.0
        for fold in range(num_folds):
            others = rows[:, [other for other in range(num_folds) if other != fold]].mean(axis=1)
            groups = cut(linkage(pdist(others), method), k)
            centre = np.stack([others[groups == group].mean(axis=0) for group in groups])
            held_out = rows[:, fold]
            total += (centre * held_out).sum() / np.linalg.norm(centre) / np.linalg.norm(held_out)
        found.append(total / num_folds)
    return found


@pytest.mark.parametrize(("clients", "folds", "width"), [(2, 2, 3), (7, 3, 40)])
def test_scores_equal_the_definition(clients: int, folds: int, width: int) -> None:
    rows = np.random.default_rng(clients).standard_normal((clients, folds, width))
    rows[: clients // 2] += 0.5
    expected = np.array([naive_scores(rows, method) for method in fold_scores.LINKAGES])
    assert fold_scores.scores(fold_scores.gram_of(fold_scores.centred_rows(rows))) == pytest.approx(
        expected, abs=1e-10
    )


@pytest.mark.parametrize("sizes", [[10, 4, 4, 2], [3, 2]])
def test_planted_groups_are_found(sizes: list[int]) -> None:
    found = core.discover(planted(sizes, seed=sum(sizes)), None, level=0.02, rng=np.random.default_rng(0))
    assert (found.verdict, found.k) == ("groups", len(sizes))
    assert found.labels.tolist() == truth(sizes).tolist()
    assert found.p_value == 1 / 100
    assert found.scores.shape == (sum(sizes) - 1,)


def test_clients_of_one_distribution_are_one_group() -> None:
    found = core.discover(planted([20], seed=0), None, rng=np.random.default_rng(0))
    assert (found.verdict, found.k) == ("none", 1)
    assert found.labels.tolist() == [0] * 20
    assert found.p_value > 0.005


def test_the_order_of_the_clients_changes_nothing() -> None:
    folds = planted([6, 5, 3], seed=4)
    order = np.random.default_rng(5).permutation(14)
    one = core.discover(folds, None, level=0.02, rng=np.random.default_rng(0))
    other = core.discover(folds[order], None, level=0.02, rng=np.random.default_rng(0))
    assert (other.verdict, other.k, other.p_value) == (one.verdict, one.k, one.p_value)
    assert other.labels.tolist() == canonical(one.labels[order]).tolist()
    assert other.scores == pytest.approx(one.scores, abs=1e-12)
    assert other.similarity == pytest.approx(one.similarity[np.ix_(order, order)], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [None, np.array([0, 0, 0, 0, 1, 1, 1])])
def test_the_p_value_is_exact_without_groups(classes: IntArray | None) -> None:
    """Of 100 federations of one skewed distribution, a fifth have a p value of at most 0.2, half of at most 0.5.

    So it is within two classes of clients of which one has other rows.
    """
    rng = np.random.default_rng(7)
    values = []
    for _ in range(100):
        rows = rng.standard_exponential((4 if classes is None else 7, 2, 6))
        if classes is not None:
            rows[classes == 1] += 2.0
        values.append(
            core.permutation_p_value(fold_scores.gram_of(fold_scores.centred_rows(rows, classes)), 0.2, rng, classes)
        )
    for level in (0.2, 0.5):
        # Three standard deviations of a binomial share.
        assert abs(np.mean(np.array(values) <= level) - level) < 3 * np.sqrt(level * (1 - level) / 100)


def test_classes_of_fold_sizes_are_no_groups_and_hide_none() -> None:
    classes = np.repeat([0, 1], 8)
    asked = {"level": 0.05, "classes": classes}
    alike = planted([16], seed=1)
    # What smaller folds do to all rows of their class.
    alike[8:] += 0.3
    assert core.discover(alike, None, level=0.05, rng=np.random.default_rng(0)).verdict == "groups"
    assert core.discover(alike, None, rng=np.random.default_rng(0), **asked).verdict == "none"  # type: ignore[arg-type]
    # Three clients with the largest folds cannot be tested alone; with those of the second class they can.
    classes = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    few = planted([4, 4], seed=1, signal=9.0)[[0, 1, 4, 2, 3, 5, 6, 7]]
    alone = core.discover(few, None, rng=np.random.default_rng(0), classes=np.where(classes == 0, 0, -1))
    found = core.discover(few, None, rng=np.random.default_rng(0), classes=classes)
    assert (alone.verdict, found.verdict, found.k) == ("none", "groups", 2)
    assert found.p_far_apart == pytest.approx((3 * 10) ** -3.0)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_rows_that_are_all_equal_hold_no_groups(value: float) -> None:
    found = core.discover(np.full((6, 4, 7), value), None, rng=np.random.default_rng(0))
    assert found.verdict == "none"
    assert found.p_value == 1.0
    assert not found.scores.any()
    assert not found.similarity.any()


@pytest.mark.parametrize(("k", "verdict"), [(1, "none"), (3, "groups"), (20, "groups")])
def test_a_number_of_groups_that_is_known_is_kept(k: int, verdict: str) -> None:
    found = core.discover(planted([5, 5], seed=1), k, rng=np.random.default_rng(0))
    assert (found.verdict, found.k, len(set(found.labels.tolist()))) == (verdict, k, min(k, 10))
    assert np.isnan(found.p_value)


@pytest.mark.parametrize(
    ("values", "p_value", "expected"),
    [
        ([0.5, 0.7, 0.699, 0.6, 0.5], 0.001, ("groups", 3)),
        ([0.1, 0.2, 0.3, 0.4, 0.5], 0.001, ("all_differ", 6)),
        ([0.5, 0.7, 0.6, 0.5, 0.4], 0.006, ("none", 1)),
        ([0.5, 0.7, 0.6, 0.5, 0.4], np.nan, ("none", 1)),
    ],
)
def test_the_choice(values: list[float], p_value: float, expected: tuple[str, int]) -> None:
    assert core.choose(np.array(values), p_value, 0.005) == expected


@pytest.mark.parametrize("groups", [2, 5, 12])
def test_equal_groups_gain_about_half_of_the_mean_up_to_the_last_one_however_many_there_are(groups: int) -> None:
    # The score of signal without noise; beyond the last group each further one costs a little.
    values = np.sqrt(np.minimum(np.arange(1, 3 * groups), groups - 1))
    values[groups - 1 :] -= 0.001 * np.arange(1, 2 * groups + 1)
    assert core.number_of_groups(values) == groups


def test_later_clients_go_to_their_group_and_strangers_to_none() -> None:
    everybody = planted([10, 10, 10], seed=6)
    early = np.r_[0:7, 10:17]
    groups = centres(everybody[early], np.repeat([0, 1], 7))
    late = [place(everybody[client], groups)[0] for client in [7, 8, 9, 17, 18, 19]]
    assert late == [0, 0, 0, 1, 1, 1]
    assert {place(everybody[client], groups)[0] for client in range(20, 30)} == {-1}


def test_of_many_clients_a_sample_is_clustered_and_the_others_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MOST_CLIENTS", 12)
    monkeypatch.setattr(core, "CLIENTS", 9)
    everybody = planted([15, 15, 10], seed=1)
    found = core.discover(everybody, None, level=0.02, rng=np.random.default_rng(0))
    assert (found.verdict, found.k) == ("groups", 3)
    assert found.labels.tolist() == truth([15, 15, 10]).tolist()
    assert found.sample is not None
    assert (len(found.sample), found.similarity.shape) == (12, (12, 12))
    differ = core.discover(planted([1] * 20, seed=1), None, level=0.02, rng=np.random.default_rng(0))
    assert (differ.verdict, differ.k, differ.labels.tolist()) == ("all_differ", 20, list(range(20)))
    alike = core.discover(planted([20], seed=1), None, level=0.02, rng=np.random.default_rng(0))
    assert (alike.verdict, alike.k, set(alike.labels.tolist())) == ("none", 1, {0})


def test_clients_differ_where_they_repeat_something_be_it_in_groups_or_not() -> None:
    rng = np.random.default_rng(8)
    own = np.repeat(rng.standard_normal((12, 1, 1)), 4, axis=1)
    noise = rng.standard_normal((12, 4, 1))
    # No permutation reaches the sum: the least p value.
    assert core.difference_p_value(own, 0.02, rng) == 0.01
    assert core.difference_p_value(own + 0.3 * noise, 0.02, rng) == 0.01
    values = [core.difference_p_value(rng.standard_normal((12, 4, 1)), 0.02, rng) for _ in range(100)]
    assert 0 <= sum(value <= 0.05 for value in values) <= 12
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)
    # What classes of clients differ in is none of their own.
    classes = np.repeat([0, 1], 6)
    assert core.difference_p_value(5.0 * classes[:, None, None] + noise, 0.02, rng, classes) > 0.02


@pytest.mark.parametrize(("signal", "least", "most"), [(3.0, 1.0, 1.0), (0.2, -0.2, 0.6)])
def test_groups_are_stable_where_two_halves_of_the_folds_agree(signal: float, least: float, most: float) -> None:
    found = core.discover(planted([6, 6], 3, signal), 2, rng=np.random.default_rng(1))
    assert found.stability is not None
    assert least <= found.stability <= most
    assert core.discover(planted([12], 3), None, rng=np.random.default_rng(1)).stability is None


# Sharpness
def test_spread_by_hand() -> None:
    # On a line at -3, -1, 1, 3 in both folds: groups around -2 and 2, each with a variance of 2, 4 apart.
    rows = np.tile(np.array([-3.0, -1.0, 1.0, 3.0])[None, :, None], (2, 1, 1))
    assert spread(rows, np.array([0, 0, 1, 1]), np.random.default_rng(0))[1] == pytest.approx(2 / 16)


def test_noise_is_no_spread() -> None:
    # The members of each group trade places between the folds: what they have of their own does not last.
    rows = np.array([[-3.0, -1.0, 1.0, 3.0], [-1.0, -3.0, 3.0, 1.0]])[:, :, None]
    labels = np.array([0, 0, 1, 1])
    assert spread(rows, labels, np.random.default_rng(0))[1] == pytest.approx(-2 / 16)
    assert is_sharp(rows, labels, np.random.default_rng(0))


def test_a_line_is_a_continuum_and_groups_with_effects_of_their_clients_are_sharp() -> None:
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((24, 4, 60)) / np.sqrt(60)
    line = np.linspace(0.0, 6.0, 24)[:, None, None] * np.eye(60)[0] + noise
    labels = np.repeat(np.arange(3), 8)
    assert not is_sharp(centred_rows(line + 3.0 * np.eye(60)[1]), labels, rng)
    effects = 0.7 * rng.standard_normal((24, 1, 60)) / np.sqrt(60)
    assert is_sharp(centred_rows(planted([8, 8, 8], 1, signal=2.0) + effects), labels, rng)


@pytest.mark.slow
def test_the_p_value_of_spread_holds_its_level_in_sharp_groups() -> None:
    """Of 120 federations of two groups, a fifth have a p value of at most 0.2."""
    rng = np.random.default_rng(5)
    p_values = [
        spread(centred_rows(planted([5, 7], seed, signal=2.0, width=8)), truth([5, 7]), rng)[0] for seed in range(120)
    ]
    # Three standard errors of a share of 0.2.
    assert abs(np.mean(np.array(p_values) <= 0.2) - 0.2) <= 0.11
