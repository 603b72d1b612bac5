"""Estimates by one-shot's and k-FED's clients from their data: least squares, local centres, and their handlers."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import RecordDict

from florets.client_app.handlers.estimate import least_squares
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.task.wire import Layout, bank, kinds
from florets.task.wire.replies import read_update
from florets.zoo.k_fed import local_centres
from tests.fakes import asker


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize(("n", "d"), [(30, 4), (4, 4), (3, 8)])
@pytest.mark.parametrize("intercept", [False, True])
def test_least_squares_agree_with_numpys(n: int, d: int, intercept: bool) -> None:
    x, y = rng().standard_normal((n, d)), rng().standard_normal(n)
    columns = np.column_stack([x, np.ones(n)]) if intercept else x
    found = least_squares(x, y, intercept)
    np.testing.assert_array_equal(found, np.linalg.lstsq(columns, y, rcond=None)[0])
    np.testing.assert_allclose(found, np.linalg.pinv(columns) @ y, atol=1e-10)


def test_k_means_finds_the_blobs_and_their_sizes() -> None:
    rows = np.concatenate([rng().normal(place, 0.1, (size, 2)) for place, size in ((0, 5), (9, 7), (-6, 3))])
    centres, sizes = local_centres(rows, 3, rng())
    order = np.argsort(centres[:, 0])
    np.testing.assert_allclose(centres[order], [[-6, -6], [0, 0], [9, 9]], atol=0.3)
    assert sizes[order].tolist() == [3, 5, 7]
    assert all(np.array_equal(a, b) for a, b in zip(local_centres(rows, 3, rng()), (centres, sizes), strict=True))


Ask = Callable[..., RecordDict]


def asking(*overrides: str) -> tuple[Ask, Layout, bank.Bank]:
    config = compose([*overrides, "num_clients=5", "seed=1"])
    task = build_task(config)
    models, base = build_models(config, task), message_settings(config, task)
    given = asker(base, 1, 5)

    def ask(kind: str, node: int = 2, send: bool = True, **settings: object) -> RecordDict:
        return given(kind, settings, node, arrays=bank.model(models, 0) if send else None)

    layout = Layout.of(bank.model(models, 0))
    return ask, layout, bank.unpack(models)[0]


def test_a_least_squares_estimate_is_all_but_the_true_model() -> None:
    ask, layout, _ = asking("experiment=clove/linear", "task.data_options.samples_per_cluster=400")
    estimate = read_update(ask(kinds.TRAIN_ESTIMATE, **{kinds.ESTIMATE: kinds.ESTIMATE_LEAST_SQUARES}), layout, 0)
    config = compose(
        ["experiment=clove/linear", "task.data_options.samples_per_cluster=400", "num_clients=5", "seed=1"]
    )
    true = build_task(config).data.true_models
    assert true is not None
    np.testing.assert_allclose(estimate.vector, true[0], atol=1e-3)
    assert estimate.train_loss < 1e-6


def build(*overrides: str) -> object:
    config = compose(list(overrides))
    return build_strategy(config, build_task(config))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("strategy=oracle", "k=3"), r"k=3: the oracle.*use k=4"),
        (("strategy=one_shot", "strategy.estimate=least_squares"), r"task.model=mlp.*use strategy.estimate=train"),
    ],
)
def test_settings_that_do_not_fit_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(list(overrides))
