"""Modules that are edited while Python runs: the next public call uses the new code, and imports no other anew."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import florets
from florets.task.edited_modules import note, reload_edited

STRATEGY = """
from dataclasses import dataclass
from florets import Plan, Round, Settings, State, Strategy, Update, setting
from florets.strategies.settings import ManyModels
from helper_of_edits import SHIFT

@dataclass(frozen=True)
class ShiftSettings(ManyModels):
    \"\"\"Clients take the models in turn.\"\"\"

class Shift(Strategy[ShiftSettings, State]):
    \"\"\"Client i trains model i + SHIFT.\"\"\"

    Settings = ShiftSettings

    def plan(self, context: Round) -> Plan[Update]:
        return context.train_assigned(
            {client.key: (client.number * SHIFT) % context.models.count for client in context.participants}
        )
"""
MODULES = ("strategy_of_edits", "helper_of_edits", "bystander_of_edits")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "strategy_of_edits.py").write_text(STRATEGY)
    (tmp_path / "helper_of_edits.py").write_text("SHIFT = 1\n")
    (tmp_path / "bystander_of_edits.py").write_text("def net(input_shape, num_outputs): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)
    reload_edited()


def test_a_run_after_an_edit_uses_the_new_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> tuple[list[str], bytes]:
        found = florets.run(
            "quickstart",
            strategy="strategy_of_edits:Shift",
            num_clients=4,
            num_rounds=1,
            k=2,
            task={"num_clusters": 2},
            pictures=False,
            loss_matrix=False,
            quiet=True,
            results_dir=folder / "results",
        )
        return (found.folder / "clients.csv").read_text().splitlines(), (
            found.folder / "models.safetensors"
        ).read_bytes()

    first, module = run(), sys.modules["strategy_of_edits"]
    assert run() == first
    assert sys.modules["strategy_of_edits"] is module
    # As many letters, within the second: Python's own check would take the compiled code for new.
    (folder / "helper_of_edits.py").write_text("SHIFT = 2\n")
    capsys.readouterr()
    second = run()
    assert "florets: reloaded edited modules: helper_of_edits, strategy_of_edits\n" in capsys.readouterr().err
    assert second[1] != first[1]
    assert sys.modules["strategy_of_edits"] is not module
    # Whoever holds the old module sees what is in the new one.
    assert module.SHIFT == 2
    assert module.Shift is sys.modules["strategy_of_edits"].Shift


def test_only_what_has_changed_and_its_importers_are_imported_anew(folder: Path) -> None:
    note(["strategy_of_edits:Shift", "bystander_of_edits:net", "no path"])
    modules = {name: __import__(name) for name in MODULES}
    assert reload_edited() == []
    os.utime(folder / "helper_of_edits.py", ns=(1, 1))
    assert reload_edited() == []
    (folder / "helper_of_edits.py").write_text("SHIFT = 30\n")
    assert reload_edited() == ["helper_of_edits", "strategy_of_edits"]
    assert [sys.modules[name] is module for name, module in modules.items()] == [False, False, True]
    # A mistake is reported where the module is used, and mended by the next edit.
    (folder / "helper_of_edits.py").write_text("SHIFT = = 30\n")
    reload_edited()
    assert "strategy_of_edits" not in sys.modules
    (folder / "helper_of_edits.py").write_text("SHIFT = 4\n")
    reload_edited()
    assert __import__("strategy_of_edits").SHIFT == 4
