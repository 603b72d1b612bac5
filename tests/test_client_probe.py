"""The real ClientApp's `train.probe` on a small task: what it sends of a second model, and how that is compressed."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, RecordDict

from florets.client_app.training import quantise
from florets.conf.compose import compose
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.cfl_gp.messages import TRAIN_PROBE, ProbeUpdate, coordinates
from florets.strategies.cfl_gp.settings import CFLGPSettings, decimals, probe_message, profile_entries
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
    content = ask(
        TRAIN_PROBE, {**settings, **decimals(upload), **probe_message(upload, SEED)}, arrays=OWN, probe=PROBE
    )
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


PROFILED = {
    "first.weight": Array(np.zeros((3, 2), dtype=np.float32)),
    "steps": Array(np.array(0, dtype=np.int64)),
    "last.weight": Array(np.zeros((2, 3), dtype=np.float32)),
}
PROFILED_LAYOUT = Layout.of(PROFILED)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_all_floating_entries_or_those_of_chosen_layers_make_the_profile() -> None:
    assert coordinates(PROFILED_LAYOUT, [], 1, rng()).tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    assert coordinates(PROFILED_LAYOUT, ["last"], 1, rng()).tolist() == [7, 8, 9, 10, 11, 12]


def test_compression_draws_one_entry_in_so_many() -> None:
    drawn = coordinates(PROFILED_LAYOUT, [], 3, rng())
    assert len(drawn) == 4
    assert set(drawn.tolist()) <= {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12}
    assert drawn.tolist() == sorted(set(drawn.tolist())) == coordinates(PROFILED_LAYOUT, [], 3, rng()).tolist()
    assert any(coordinates(PROFILED_LAYOUT, [], 3, rng(seed)).tolist() != drawn.tolist() for seed in range(1, 5))
    assert len(coordinates(PROFILED_LAYOUT, ["last"], 6, rng())) == 1


def test_coordinates_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(ValueError, match=r"compression=6.1: one in that many of 6 parameters is none; use at most 6"):
        coordinates(PROFILED_LAYOUT, ["last"], 6.1, rng())


def test_decimals_are_rounded_or_cut_off() -> None:
    values = np.array([0.126, -0.126, 0.004, 1.0, -7.999], dtype=np.float32)
    np.testing.assert_array_equal(quantise(values, "round", 2), np.float32([0.13, -0.13, 0.0, 1.0, -8.0]))
    np.testing.assert_array_equal(quantise(values, "truncate", 2), np.float32([0.12, -0.12, 0.0, 1.0, -7.99]))
    np.testing.assert_array_equal(quantise(values, "round", 0), np.float32([0, -0.0, 0, 1, -8]))
    assert quantise(values, "none", 2) is values
    counters = np.array([3], dtype=np.int64)
    assert quantise(counters, "round", 0) is counters
    assert quantise(np.float32([3e38]), "round", 4) == np.float32(3e38)
    with pytest.raises(ValueError, match="quantise='up'"):
        quantise(values, "up", 2)
    for digits in (-1, 16, 4096):
        with pytest.raises(ValueError, match=f"quantise-digits={digits}: must be from 0 to 15"):
            quantise(values, "round", digits)
