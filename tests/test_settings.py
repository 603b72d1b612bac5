"""An algorithm's settings: one place for keys and defaults, cheap to check, apart from what a strategy remembers."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from florets.strategies.base.models import Models
from florets.strategies.clove.strategy import CLoVE, CLoVESettings
from florets.strategies.shared.personal_models import PersonalModels
from tests.fakes import models, thetas

ROOT = Path(__file__).parents[1]


WORK = """
import sys
from florets.conf.compose import compose
from florets.commands.help import help_text

print(help_text())
print(compose(["strategy=two_phase", "k=3"]))
try:
    compose(["no_such_key=1"])
except ValueError as error:
    print(error)
print([name for name in ("flwr", "numpy", "scipy", "sklearn", "torch", "matplotlib") if name in sys.modules])
"""


def test_checking_keys_and_the_help_load_none_of_the_heavy_packages() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "no_such_key=1: there is no such key" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_settings_are_taken_whole_or_by_keyword_and_never_changed() -> None:
    whole = CLoVESettings(memory=True, stability_rounds=2)
    assert CLoVE(whole, k=2).settings == CLoVE(k=2, memory=True, stability_rounds=2).settings == whole
    # A keyword counts on top of what was given whole.
    assert CLoVE(whole, stability_rounds=5).settings == CLoVESettings(memory=True, stability_rounds=5)
    assert whole.stability_rounds == 2
    with pytest.raises(FrozenInstanceError):
        whole.memory = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CLoVE(stability_rounds=0), "^stability_rounds=0: must be at least 1.$"),
        (
            lambda: CLoVE(weighting="nonsense", probes="x"),
            "^weighting='nonsense': must be one of examples, uniform, all_.*[.] probes='x': must be an integer.$",
        ),
    ],
)
def test_a_constructor_checks_as_the_configuration_does(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_constructor_converts_what_loses_nothing() -> None:
    found = CLoVE(fraction_train=1, weighting="Uniform", stability_rounds=np.int64(4), shared_layers=("1",)).settings
    assert found == CLoVESettings(weighting="uniform", stability_rounds=4, shared_layers=["1"])
    assert [type(value) for value in (found.fraction_train, found.stability_rounds)] == [float, int]


def test_models_of_single_clients_are_kept_exactly_in_float32_where_they_are() -> None:
    start, kept = Models(models(4.0, 6.0)), PersonalModels()
    assert thetas(kept.of("a", start).record) == [4.0], "who has none starts from the first model"
    odd = np.array([np.float32(0.1), 7.0], dtype=np.float64)
    kept["a"] = odd
    assert kept.data["a"].dtype == np.float32
    assert kept.of("a", start).bank.tobytes() == odd[np.newaxis].tobytes()
    assert thetas(kept.of("b", start).record) == [4.0]
    assert thetas(start.record) == [4.0, 6.0]


READ = """
import dataclasses
from florets.strategies import STRATEGIES
from florets.strategies.registry import settings_type, strategy_class

def facts(kind):
    public = [name for name in dir(kind) if name[0] != "_" and not callable(getattr(kind, name))]
    known = {name: getattr(kind, name) for name in public if not isinstance(getattr(kind, name), property)}
    values = vars(kind())
    fields = [(f.name, f.type, values[f.name], f.metadata) for f in dataclasses.fields(kind)]
    return kind.__doc__, kind.__name__, fields, known, [b.__name__ for b in kind.__mro__], sorted(dir(kind))

read = {name: settings_type(name) for name in STRATEGIES}
assert len(set(read.values())) == len(read)
for name in STRATEGIES:
    own = strategy_class(name).Settings
    assert own is settings_type(name) and own is not read[name] and facts(own) == facts(read[name]), name
"""


@pytest.mark.slow
def test_settings_that_are_read_without_importing_a_strategy_are_the_strategys() -> None:
    done = subprocess.run([sys.executable, "-c", READ], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
