"""The real ClientApp's `train.probe` on a small task: what it sends of a second model."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import RecordDict

from florets.conf.compose import compose
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.cfl_gp.messages import TRAIN_PROBE, ProbeUpdate
from florets.strategies.cfl_gp.settings import CFLGPSettings, probe_message, profile_entries
from florets.task.wire import Layout, bank, codec, kinds
from florets.task.wire.replies import read_update
from tests.fakes import asker

CONFIG = compose(["num_clients=4", "k=3", "task.model_options={hidden: [8]}"])
TASK = build_task(CONFIG)
BANK = build_models(CONFIG, TASK)
SETTINGS = message_settings(CONFIG, TASK)
OWN, PROBE = bank.model(BANK, 0), bank.model(BANK, 1)
LAYOUT = Layout.of(OWN)
GRADIENT: dict[str, object] = {kinds.REPLY: kinds.REPLY_GRADIENT, kinds.GRADIENT_BATCH: 20}
MODEL: dict[str, object] = {kinds.REPLY: kinds.REPLY_MODEL}

SEED = 1

Ask = Callable[..., RecordDict]


@pytest.fixture
def ask() -> Ask:
    return asker(SETTINGS)


def on_probe(ask: Ask, settings: dict[str, object], upload: CFLGPSettings) -> tuple[np.ndarray, np.ndarray]:
    places = profile_entries(upload, SEED, LAYOUT)
    content = ask(TRAIN_PROBE, {**settings, **probe_message(upload, SEED)}, arrays=OWN, probe=PROBE)
    update = codec.read(ProbeUpdate, content, layout=LAYOUT, model=0, d=len(places))
    return update.vector, update.profile


def trained(ask: Ask, settings: dict[str, object], model: object) -> np.ndarray:
    return read_update(ask(kinds.TRAIN, settings, arrays=model), LAYOUT, 0).vector


@pytest.mark.parametrize("settings", [GRADIENT, MODEL], ids=["gradients", "models"])
def test_both_models_see_the_same_minibatches_and_the_own_one_is_trained_as_ever(
    ask: Ask, settings: dict[str, object]
) -> None:
    own, profile = on_probe(ask, settings, CFLGPSettings())
    assert own.tobytes() == trained(ask, settings, OWN).tobytes()
    expected = trained(ask, settings, PROBE)
    if settings is MODEL:
        expected = expected - LAYOUT.flatten(PROBE)
    np.testing.assert_allclose(profile, expected, atol=1e-7)


def test_only_the_coordinates_that_the_server_knows_of_are_sent(ask: Ask) -> None:
    _, whole = on_probe(ask, GRADIENT, CFLGPSettings())
    for settings in ({"compression": 7}, {"profile_layers": ["3"]}, {"compression": 3, "profile_layers": ["1"]}):
        upload = CFLGPSettings(**settings)  # type: ignore[arg-type]
        places = profile_entries(upload, SEED, LAYOUT)
        assert 0 < len(places) < LAYOUT.size
        _, part = on_probe(ask, GRADIENT, upload)
        np.testing.assert_array_equal(part, whole[places])


@pytest.mark.parametrize("settings", [GRADIENT, MODEL], ids=["gradients", "models"])
def test_counters_and_flags_are_sent_as_they_are_and_make_no_profile(settings: dict[str, object]) -> None:
    config = compose(["num_clients=4", "k=2", "task.model=tests.own_functions:flagged"])
    task = build_task(config)
    models = build_models(config, task)
    own, probe = bank.model(models, 0), bank.model(models, 1)
    settings = {**message_settings(config, task), **settings}
    layout = Layout.of(own, settings[kinds.UNTRAINED])  # type: ignore[arg-type]
    upload = CFLGPSettings(quantise="round", quantise_digits=2)
    places = profile_entries(upload, SEED, layout)
    content = asker({**settings, **probe_message(upload, SEED)})(TRAIN_PROBE, {}, arrays=own, probe=probe)
    update = codec.read(ProbeUpdate, content, layout=layout, model=0, d=len(places))
    # The flag, the counter and the 2 x 16 running statistics.
    assert layout.size - len(places) == 3 + 32
    sent = content.array_records[kinds.ARRAYS]
    if settings[kinds.REPLY] == kinds.REPLY_MODEL:
        np.testing.assert_array_equal(sent["flag"].numpy(), [True, False])
        assert sent["2.num_batches_tracked"].numpy() > 0
    assert np.abs(update.profile).max() > 0
