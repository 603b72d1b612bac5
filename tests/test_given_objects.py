"""Objects as values of keys: their names, their files, who may read them, and the model functions made of them."""

import importlib
import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import florets
from florets.api.keys import choices_of, overrides_of
from florets.conf.problems import ConfigError
from florets.server_app.checkpoint import Checkpoints
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.registry import UnknownStrategy, strategy_class
from florets.strategies.settings import ManyModels
from florets.task import given
from florets.task.consent import EVERYTHING, Consent
from florets.task.fingerprint import file_hashes
from florets.task.models.given_model import model_function

SMALL: dict[str, Any] = {
    **{"num_clients": 4, "num_rounds": 1, "k": 2, "task": {"num_clusters": 2}},
    **{"pictures": False, "loss_matrix": False, "quiet": True},
}
SOURCE = """
WIDTH = 8
class Net:
    kinds = ("a b", 2.5)
    def width(self, name):
        return WIDTH if name in {"x", "yy", "zzz"} else super().__sizeof__()
"""


def net_of_source(source: str, file: str = "cell") -> type:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), names)
    return names["Net"]  # type: ignore[no-any-return]


def test_the_same_code_has_the_same_name_in_every_process() -> None:
    path = given.hold(net_of_source(SOURCE), "Net")
    assert given.hold(net_of_source(f"# A comment\n\n{SOURCE}", "another cell"), "Net") == path
    assert given.hold(net_of_source(SOURCE.replace("WIDTH = 8", "WIDTH = 9")), "Net") != path
    assert given.hold(net_of_source(SOURCE.replace("2.5", "2")), "Net") != path
    code = (
        f"names = {{'__name__': '__main__'}}; exec({SOURCE!r}, names)\n"
        "from florets.task import given; print(given.hold(names['Net'], 'Net'))"
    )
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == path


def test_a_run_keeps_what_it_was_given_for_whoever_trusts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        def __init__(self, shape: tuple[int, ...], classes: int, hidden: int = 4) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, classes))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)  # type: ignore[no-any-return]

    @dataclass(frozen=True)
    class TurnsSettings(ManyModels):
        """Clients take the models in turn."""

    @dataclass
    class TurnsState(florets.State):
        rounds: int = 0

    class Turns(florets.Strategy[TurnsSettings, TurnsState]):
        Settings = TurnsSettings
        State = TurnsState

        def round(self, r: florets.Round) -> florets.Steps:
            self.state.rounds += 1
            updates = yield r.train({one.key: one.number % 2 for one in r.participants})
            return r.average(updates)

    keys = {**SMALL, "model": Net, "task": {"num_clusters": 2, "model_options": {"hidden": 6}}}
    run = florets.run("quickstart", strategy=Turns, results_dir=tmp_path, **keys)
    assert run.accuracy is not None
    assert sorted(run.models[0].state_dict()) == [f"layers.{n}.{part}" for n in (1, 3) for part in ("bias", "weight")]
    path = run.config["task"]["model"]
    assert path.startswith("florets.task.given:Net_")
    # As in another process.
    for name, empty in (("_held", {}), ("_objects", {}), ("_folders", [])):
        monkeypatch.setattr(given, name, empty)
    with pytest.raises(ConfigError, match="add trust=true"):
        _ = florets.load(run.folder).models  # type: ignore[union-attr]
    with pytest.raises(UnknownStrategy, match="give the object again, or put it into a module"):
        strategy_class(run.config["strategy"]["name"])
    again = florets.load(run.folder, trust=True)
    assert isinstance(again, florets.Run)
    for name, value in run.models[1].state_dict().items():
        assert torch.equal(again.models[1].state_dict()[name], value)
    # The state of a class that no module has is built for the run's own strategy alone.
    checkpoint = Checkpoints(run.folder).load(strategy_class(run.config["strategy"]["name"]))
    assert checkpoint is not None
    assert checkpoint.state.rounds == 1  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="the strategy's package"):
        Checkpoints(run.folder).load(CLoVE)
    (file,) = (run.folder / given.FOLDER).glob("Net_*")
    header, _, data = file.read_bytes().partition(b"\n")
    file.write_bytes(json.dumps({**json.loads(header), "python": "3.9"}).encode() + b"\n" + data)
    given.read_again()
    with pytest.raises(ValueError, match=r"by Python 3\.9"):
        _ = florets.load(run.folder, trust=True).models  # type: ignore[union-attr]


@pytest.mark.slow
def test_workers_and_flowers_processes_take_the_same_objects(tmp_path: Path) -> None:
    def run(blocks: str = "off", **keys: Any) -> bytes:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        found = florets.run("quickstart", model=model, results_dir=tmp_path, batch_clients=blocks, **SMALL, **keys)
        return (found.folder / "models.safetensors").read_bytes()

    assert run("auto") == run("auto", workers=2)
    assert run() == run(engine="flwr")


def test_what_a_module_has_is_named_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forms_of_models.py").write_text("class Mine: ...\ndef flat(inputs, outputs): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("forms_of_models")
    assert overrides_of(None, {"strategy": module.Mine}) == ["strategy='forms_of_models:Mine'"]
    assert overrides_of(None, {"task": {"partition": module.flat}}) == ["task.partition='forms_of_models:flat'"]
    # Its parameters have other names than a model function's: it is wrapped, and its module counts all the same.
    (text,) = overrides_of(None, {"model": module.flat})
    path = text.removeprefix("task.model=")
    assert path.startswith("'florets.task.given:flat_")
    assert list(file_hashes([path.strip("'")])) == ["forms_of_models.py"]
    assert choices_of(None, {"model": ["mlp", module.flat]}) == [f"task.model=mlp,{path}"]
    named = {"data": "digits", "partition": "rotation"}
    assert overrides_of(None, named) == ["task.data=digits", "task.partition=rotation"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (lambda inputs, outputs: nn.Linear(inputs[0], outputs), {}),
        (lambda bias=True: nn.Linear(3, 2, bias=bias), {"bias": True}),
        (nn.Linear(3, 2), {}),
    ],
)
def test_models_are_given_in_several_forms(model: Any, options: dict[str, Any]) -> None:
    function = model_function(model)
    built = function(input_shape=(3,), num_outputs=2, **options)
    other = function(input_shape=(3,), num_outputs=2, **options)
    assert built.weight.shape == (2, 3)
    # The parameters of a module that was given are drawn anew as well.
    assert not torch.equal(built.weight, other.weight)
    assert model is not built


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "model",
            lambda inputs: nn.Linear(inputs, 1),
            r"requires 1 parameters \(inputs\); give a function or class of two",
        ),
        ("seed", object(), "a object is no value of a key"),
        ("partition", lambda lock=threading.Lock(): lock, "cannot be pickled .* put it into a module"),  # noqa: B008
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        overrides_of(None, {key: value})


def test_no_real_node_takes_an_object() -> None:
    path = given.hold(net_of_source(SOURCE), "Net")
    with pytest.raises(ValueError, match="put it into a module that the nodes have"):
        Consent.of({"allow": "florets"}).require("task.model", path)
    EVERYTHING.require("task.model", path)
