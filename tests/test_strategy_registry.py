"""Finding a strategy: a registry name, an entry point or an import path mean the same thing everywhere."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.consent import imported_functions
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, config_to_json
from florets.conf.saved import saved_config
from florets.server_app.build import build_strategy, build_task
from florets.server_app.checkpoint import Checkpoints
from florets.server_app.resume import read_resume
from florets.server_app.run_models import load_run
from florets.strategies import STRATEGIES, registry
from florets.strategies.registry import UnknownStrategy, find_strategy, settings_type, strategy_class, strategy_names
from tests import own_strategy as own

ROOT = Path(__file__).parents[1]
OWN = "tests.own_strategy:EvenOdd"
SMALL = ("num_clients=4", "k=2", "num_rounds=3", "task.num_clusters=2", "task.model_options.hidden=[4]", "quiet=true")


def test_the_import_path_of_a_built_in_class_means_its_registry_name() -> None:
    path = "florets.strategies.cfl_gp.strategy:CFLGP"
    assert find_strategy(path) == find_strategy("cfl_gp")
    assert (find_strategy(path).id, find_strategy(path).trusted) == ("cfl_gp", True)
    assert compose([f"strategy='{path}'"]) == compose(["strategy=cfl_gp"])


def test_an_own_class_is_configured_built_and_named_like_ours() -> None:
    found = find_strategy(OWN)
    assert (found.id, found.path, found.label, found.trusted) == (OWN, OWN, "EvenOdd", False)
    assert settings_type(OWN) is own.EvenOddSettings
    config = compose([*SMALL, f"strategy='{OWN}'", "strategy.swap_every=3"])
    assert (config.strategy.name, config.strategy.settings) == (OWN, own.EvenOddSettings(swap_every=3))
    assert config_from_json(config_to_json(config)) == config
    assert imported_functions(config) == [f"strategy={OWN}"]
    strategy = build_strategy(config, build_task(config))
    assert isinstance(strategy, own.EvenOdd)
    assert (strategy.settings, strategy.state) == (own.EvenOddSettings(swap_every=3), own.EvenOddState())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("strategy.swap_every=4", "strategy.swap_every=4: there are num_rounds=3; use at most that."),
        ("strategy.swap_evry=1", "strategy.swap_evry=1: there is no such key. Did you mean strategy.swap_every?"),
    ],
)
def test_the_keys_of_an_own_class_are_checked_as_ours(given: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([*(text for text in SMALL if not given.startswith(text[:2])), f"strategy='{OWN}'", given])
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("even_odd", "no such strategy"),
        ("tests.no_such_module:EvenOdd", r"module tests.no_such_module cannot be imported \(ModuleNotFoundError: "),
        ("tests.own_strategy:OddEven", "module tests.own_strategy has no class OddEven"),
    ],
)
def test_what_is_no_strategy_is_told_with_the_names_that_there_are(name: str, reason: str) -> None:
    with pytest.raises(UnknownStrategy, match=f"^{reason}"):
        settings_type(name)
    with pytest.raises(
        ConfigError, match=rf"^strategy={name}: {reason}.*; there are clove, .* or package.module:Class"
    ):
        compose([f"strategy='{name}'"])


def test_an_installed_entry_point_has_a_name_and_needs_no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody takes over a name of ours.
    offered = [EntryPoint(name, OWN, registry.GROUP) for name in ("even_odd", "clove")]
    monkeypatch.setattr(registry, "_installed", lambda _: offered)
    found = find_strategy("even_odd")
    assert found == find_strategy(OWN)
    assert (found.id, found.label, found.folder, found.trusted) == ("even_odd", "even_odd", "even_odd", True)
    assert strategy_class("even_odd") is own.EvenOdd
    assert strategy_class("clove") is not own.EvenOdd
    assert strategy_names() == [*STRATEGIES, "even_odd"]
    config = compose([*SMALL, f"strategy='{OWN}'"])
    assert config == compose([*SMALL, "strategy=even_odd"])
    assert config.strategy.name == "even_odd"
    assert imported_functions(config) == []


def test_a_run_of_an_own_class_leaves_its_folder_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, f"strategy='{OWN}'", f"results_dir={tmp_path}"]) == 0
    assert "quickstart, EvenOdd, seed 0: " in capsys.readouterr().out
    (folder,) = tmp_path.rglob("seed-0")
    assert find_strategy(OWN).folder in folder.parts
    saved = yaml.safe_load((folder / "config.yaml").read_text())["strategy"]
    assert (saved["name"], saved["swap_every"]) == (OWN, 2)
    checkpoint = Checkpoints(folder).load(own.EvenOdd)
    assert checkpoint is not None
    assert isinstance(checkpoint.state, own.EvenOddState)
    assert checkpoint.state.swaps == 1
    assert main([f"resume={folder}", "num_rounds=4"]) == 2
    assert "add trust=true" in capsys.readouterr().err
    assert main([f"resume={folder}", "num_rounds=4", "trust=true"]) == 0
    checkpoint = Checkpoints(folder).load(own.EvenOdd)
    assert checkpoint is not None
    assert (checkpoint.server_round, checkpoint.state.swaps) == (4, 2)  # type: ignore[attr-defined]
    # Its state is decoded for the run's own strategy alone.
    with pytest.raises(RuntimeError, match="the strategy's package"):
        Checkpoints(folder).load(strategy_class("clove"))


@pytest.mark.parametrize("form", ["mapping", "name"])
def test_a_saved_run_imports_no_strategy_of_its_authors_without_trust(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not_asked_for.py").write_text(
        "from tests.own_strategy import EvenOdd as Mine\nimport pathlib\n"
        "pathlib.Path(__file__).with_name('imported').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    values = json.loads(config_to_json(compose([*SMALL, f"strategy='{OWN}'"])))
    values["strategy"]["name"] = "not_asked_for:Mine"
    if form == "name":
        values["strategy"] = "not_asked_for:Mine"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    refusal = "names code of its author's, strategy=not_asked_for:Mine; add trust=true"
    for read in (
        lambda: saved_config(tmp_path),
        lambda: read_resume([f"resume='{tmp_path}'"], ROOT),
        lambda: load_run(tmp_path),
    ):
        with pytest.raises(ConfigError, match=refusal):
            read()
    assert "not_asked_for" not in sys.modules
    assert not (tmp_path / "imported").exists()
    assert saved_config(tmp_path, trust=True).strategy.name == "not_asked_for:Mine"
    assert (tmp_path / "imported").exists()
    # Not by the monkeypatch, which would put it back.
    del sys.modules["not_asked_for"]
