"""Flower's wrappers around strategies are refused by name; its mods around handlers are called, also in process."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.mod import LocalDpMod, message_size_mod
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)

from florets.client_app.app import FloretsApp
from florets.client_app.app import app as bare_app
from florets.client_app.batching import in_blocks
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.base.strategy import Strategy
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.wire import kinds

CONFIG = compose(["num_clients=4", "k=2", "task.num_clusters=2", "task.model_options.hidden=[8]", "num_rounds=2"])
TASK = build_task(CONFIG)
SETTINGS = message_settings(CONFIG, TASK)


def run(app: FloretsApp, strategy: Any, k: int = 1) -> ArrayRecord:
    start = build_models(replace(CONFIG, k=k), TASK)
    found = strategy.start(LocalGrid(app, 4), start, num_rounds=2, train_config=SETTINGS)
    return ArrayRecord(dict(found.arrays))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1e-6, 4),
        lambda inner: DifferentialPrivacyClientSideFixedClipping(inner, 0.1, 1e-6, 4),
        lambda inner: DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.1, 4),
        lambda inner: DifferentialPrivacyClientSideAdaptiveClipping(inner, 0.1, 4),
    ],
)
@pytest.mark.parametrize("inner", [FedAvg, CLoVE])
def test_a_wrapper_around_a_clustered_strategy_is_refused_by_name(wrap: Any, inner: type[Strategy[Any, Any]]) -> None:
    wrapper = wrap(inner())
    asked: list[str] = []

    class Asked(LocalGrid):
        def push_messages(self, messages: Any) -> list[str]:
            asked.append("a client")
            return super().push_messages(messages)

    with pytest.raises(ValueError, match=f"^{type(wrapper).__name__} around {inner.__name__}: .*call start of the"):
        wrapper.start(Asked(bare_app, 4), build_models(CONFIG, TASK), num_rounds=1, train_config=SETTINGS)
    assert not asked


def test_who_calls_the_hooks_himself_is_no_wrapper() -> None:
    strategy, grid = FedAvg(), LocalGrid(bare_app, 4)
    start = build_models(replace(CONFIG, k=1), TASK)
    arrays: ArrayRecord | None = start
    for server_round in (1, 2):
        assert arrays is not None
        messages = strategy.configure_train(server_round, arrays, SETTINGS, grid)
        arrays, _ = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
    assert arrays is not None
    expected = run(bare_app, FedAvg())
    assert [a.data for a in arrays.values()] == [a.data for a in expected.values()]


def test_mods_are_called_around_every_handler_in_their_order() -> None:
    seen: list[str] = []

    def inner(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        seen.append(f"inner {message.metadata.message_type}")
        return call_next(message, context)

    def outer(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        seen.append("outer")
        return call_next(message, context)

    models = run(FloretsApp(mods=[outer, message_size_mod, inner]), CLoVE(k=2), k=2)
    assert seen[::2] == ["outer"] * (len(seen) // 2)
    assert {text.removeprefix("inner ") for text in seen[1::2]} == {
        *(kinds.HELLO, kinds.LOSSES, kinds.TRAIN, kinds.EVALUATE)
    }
    # What only looks on changes nothing.
    assert [a.data for a in models.values()] == [a.data for a in run(bare_app, CLoVE(k=2), k=2).values()]


def test_a_mod_that_clips_updates_clips_them() -> None:
    clip = LocalDpMod(clipping_norm=1e-6, sensitivity=1e-12, epsilon=1.0, delta=0.5)

    def training(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        # Flower's mod wants a model in every message.
        is_training = message.metadata.message_type == kinds.TRAIN
        return clip(message, context, call_next) if is_training else call_next(message, context)

    start = build_models(replace(CONFIG, k=1), TASK).to_numpy_ndarrays()
    clipped, free = (run(app, FedAvg()).to_numpy_ndarrays() for app in (FloretsApp(mods=[training]), bare_app))

    def moved(models: list[Any]) -> float:
        return float(np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(models, start, strict=True))))

    # Two rounds, to the rounding of float32.
    assert moved(clipped) < 3e-6
    assert moved(free) > 1e-2


def test_a_lifespan_is_kept_in_process_too() -> None:
    app, seen = FloretsApp(), []

    @app.lifespan()
    def lifespan(context: Context) -> Iterator[None]:
        seen.append(context.node_config["partition-id"])
        yield

    run(app, FedAvg())
    assert set(seen) == {0, 1, 2, 3}


def test_clients_of_an_app_with_mods_are_not_computed_together() -> None:
    grid = LocalGrid(FloretsApp(mods=[message_size_mod]), 4, None, in_blocks)
    with pytest.raises(ConfigError, match="batch_clients=auto: the ClientApp has mods"):
        grid.choose_blocks(replace(CONFIG, batch_clients="auto"), TASK)
    assert grid.choose_blocks(CONFIG, TASK) == (CONFIG, "")
