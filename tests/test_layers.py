"""Layers: an author's own strategy under each protection, and what may not be looked at under one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import florets
from florets.conf.compose import compose
from florets.engines import engine
from florets.strategies import STRATEGIES
from florets.strategies.base.layer import Layer
from florets.strategies.coverage import COVERS
from florets.strategies.layers.masks import Masks
from florets.strategies.registry import settings_type
from florets.strategies.settings import ASKS

SMALL = [
    *("num_clients=6", "k=2", "task.num_clusters=2", "task.model_options={hidden: [8]}", "num_rounds=3"),
    *("quiet=true", "pictures=false"),
]
HERE = "tests.test_layers"


@dataclass(frozen=True)
class EvenOddSettings(florets.ManyModels):
    """Even and odd clients train a model each, and swap every few rounds."""

    period: int = florets.setting(5, "rounds from one swap to the next", least=1)
    freezes: ClassVar[bool] = True


class EvenOdd(florets.Strategy[EvenOddSettings, florets.State]):
    """Clients with an even number train model 0, the others model 1."""

    Settings = EvenOddSettings
    is_frozen = True

    def round(self, r: florets.Round) -> florets.Steps:
        swaps = r.server_round // self.settings.period
        updates = yield r.train({client.key: (client.number + swaps) % 2 for client in r.participants})
        return r.average(updates)


class Looking(EvenOdd):
    """Looks at single updates, which it does not say."""

    def round(self, r: florets.Round) -> florets.Steps:
        updates = yield r.train({client.key: 0 for client in r.participants})
        assert np.isfinite([update.train_loss for _, update in updates]).all()
        return r.average(updates)


class Choosing(EvenOdd):
    """Clients choose among the models, which it does not say."""

    def round(self, r: florets.Round) -> florets.Steps:
        updates = yield r.train_best()
        return r.average(updates)


class Placing(EvenOdd):
    """Clients train the model with the lowest loss, and it does not say that it asks for losses."""

    def round(self, r: florets.Round) -> florets.Steps:
        updates = yield r.train(r.ask_lowest(r.participants))
        return r.average(updates)


@dataclass(frozen=True)
class GroupingSettings(EvenOddSettings):
    """Says that it asks for losses, in two rounds."""

    asks: ClassVar[frozenset[str]] = frozenset({"losses"})
    grouping_rounds: ClassVar[int | None] = 2


class Comparing(EvenOdd):
    """Looks at single losses, though it says that it asks for them."""

    Settings = GroupingSettings

    def round(self, r: florets.Round) -> florets.Steps:
        worst = max(float(own.max()) for own in r.losses().rows)
        updates = yield r.train({client.key: int(worst > 1) for client in r.participants})
        return r.average(updates)


class Remembering(florets.Method[EvenOddSettings, Any]):
    """Keeps each client's update."""

    def keep(self, updates: Any) -> None:
        for key, update in updates:
            self.kept[key] = update.vector


class Keeping(EvenOdd):
    """Keeps what single clients sent."""

    method = Remembering


@dataclass(frozen=True)
class UnplannedSettings(EvenOddSettings):
    """Asks for losses, in nobody knows how many rounds."""

    asks: ClassVar[frozenset[str]] = frozenset({"losses"})


class Unplanned(EvenOdd):
    """Asks for losses in a number of rounds that is not known before."""

    Settings = UnplannedSettings


class Forgetting(EvenOdd):
    """Forgets to return the models."""

    def round(self, r: florets.Round) -> Any:
        r.average((yield r.train(dict.fromkeys([client.key for client in r.participants], 0))))


def play(name: str, *keys: str, results: Any) -> Any:
    given = [*SMALL, f"strategy={name if ':' in name else f'{HERE}:{name}'}", *keys, f"results_dir={results}"]
    return engine.run(compose(given), given)


@pytest.mark.parametrize(
    "keys",
    [
        ("privacy.kind=central", "privacy.epsilon=100"),
        ("privacy.kind=local", "privacy.epsilon=100"),
        ("secure_aggregation=true",),
        ("robust=median",),
    ],
)
def test_an_authors_strategy_has_every_protection_for_nothing(keys: tuple[str, ...], tmp_path: Any) -> None:
    protected, plain = (play("EvenOdd", *more, results=tmp_path / str(len(more))) for more in (keys, ()))
    assert protected.final_accuracy is not None
    # Masked sums are exact, and longer.
    found, other = (
        (run.bytes_up, (Path(run.folder) / "models.safetensors").read_bytes()) for run in (protected, plain)
    )
    assert found != other


@pytest.mark.parametrize("keys", [("privacy.kind=central", "privacy.epsilon=100"), ("secure_aggregation=true",)])
def test_single_updates_that_a_protection_hides_cannot_be_looked_at(keys: tuple[str, ...], tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"averages.*Round\.average"):
        play("Looking", *keys, results=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Choosing", r"Settings\.asks names choices"),
        ("Placing", r"Settings\.asks names choices or losses"),
        ("Comparing", r"groups of losses \(Round\.group\)"),
        ("Keeping", "kept for single clients has no noise"),
        ("Unplanned", "give its Settings grouping_rounds"),
    ],
)
def test_central_noise_refuses_what_it_does_not_cover(name: str, words: str, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=words):
        play(name, "privacy.kind=central", "privacy.epsilon=100", results=tmp_path)


def test_a_layer_that_does_not_say_so_is_not_covered_by_noise(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(Masks, "under_noise", Layer.under_noise)
    keys = ("privacy.kind=central", "privacy.epsilon=100", "secure_aggregation=true")
    with pytest.raises(ValueError, match="noise does not cover masks"):
        play("EvenOdd", *keys, results=tmp_path)


def test_an_authors_handler_is_refused_under_noise_before_a_client_is_asked(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="statistics: its answers are not noised"):
        play("tests.own_methods:Asking", "privacy.kind=central", "privacy.epsilon=100", results=tmp_path)
    assert not [*tmp_path.rglob("rounds.jsonl")]


def test_slips_of_an_author_are_named(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match=r"Forgetting\.round\(\) returned no models: return r\.average"):
        play("Forgetting", results=tmp_path)
    for asks in (("updates",), frozenset({"update"})):
        with pytest.raises(TypeError, match="must be a frozenset of losses, choices"):
            type("Wrong", (florets.Settings,), {"asks": asks})


def test_what_strategies_ask_has_words_and_what_protections_cover_is_asked() -> None:
    for name in STRATEGIES:
        assert settings_type(name)().asks <= ASKS.keys(), name
    assert frozenset().union(*COVERS.values()) <= ASKS.keys()
