"""`florets x` and `florets.x()` do the same, with equal bits; keyword arguments are the command's keys."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import florets
from florets.api.keys import choices_of, overrides_of
from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError

SMALL = {"num_rounds": 2, "pictures": False, "quiet": True}

PRESETS = ("quickstart", "digits_label_skew", "clove/linear", "compare/digits_rotation", "fedem/digits_mixture")


def _digests(folder: Path) -> dict[str, str]:
    """Return a hash of every file of a run that holds no times."""
    names = ("models.safetensors", "clients.csv", "loss_matrix.csv", "clusters.safetensors")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_command_and_the_function_leave_equal_runs(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([f"experiment={preset}", *(f"{key}={str(value).lower()}" for key, value in SMALL.items())]) == 0
    (folder,) = [path.parent for path in (tmp_path / "results").rglob("summary.json")]
    by_command = _digests(folder)
    run = florets.run(preset, **SMALL)
    assert run.folder == folder
    assert _digests(run.folder) == by_command


def test_groups_lists_and_options_are_written_as_the_command_takes_them() -> None:
    keys = {
        "strategy": {"name": "ifca", "fraction_train": 0.5},
        "train": {"learning_rate": 1e-5, "local_steps": None},
        "task": {"model_options": {"hidden": [8, 4]}, "head_layers": ["a b"]},
        "cluster_test": True,
        "seed": np.int64(3),
        "results_dir": Path("some where"),
    }
    config = compose(overrides_of("quickstart", keys))
    assert (config.strategy.name, config.strategy.settings.fraction_train) == ("ifca", 0.5)
    assert (config.train.learning_rate, config.train.local_steps) == (1e-5, None)
    assert config.task.model_options == {"hidden": [8, 4]}
    assert config.task.head_layers == ["a b"]
    assert (config.cluster_test, config.seed, config.results_dir) == (True, 3, "some where")


def test_several_values_of_a_key_are_the_choices_of_a_sweep() -> None:
    texts = choices_of(["a", "b"], {"seed": range(3), "train": {"learning_rate": (0.1, 0.2)}, "k": 4})
    assert texts == ["experiment=a,b", "seed=0,1,2", "train.learning_rate=0.1,0.2", "k=4"]
    assert choices_of(None, {"task": {"head_layers": [["x", "y"]]}}) == ["task.head_layers=[x,y]"]


def test_wrong_keys_are_refused_as_the_command_refuses_them() -> None:
    with pytest.raises(ConfigError, match=r"num_round=3: .*num_rounds"):
        florets.run("quickstart", num_round=3)
    with pytest.raises(ConfigError, match="keep one"):
        florets.run("quickstart", experiment="clove/linear")
    with pytest.raises(ConfigError, match="a set is no value of a key"):
        florets.run("quickstart", seed={1})


def test_models_are_modules_in_eval_mode_and_an_earlier_run_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = florets.run("quickstart", num_rounds=3, pictures=False, quiet=True)
    assert len(run.models) == 4
    assert not run.models[2].training
    assert run.models[2](torch.zeros(5, 1, 8, 8)).shape == (5, 10)
    earlier = florets.load(run.folder)
    assert isinstance(earlier, florets.Run)
    assert (earlier.accuracy, earlier.ari, earlier.config) == (run.accuracy, run.ari, run.config)
    with pytest.raises(ConfigError, match="holds no finished run"):
        florets.load(tmp_path)


def test_a_sweep_is_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = florets.sweep("quickstart", strategy=["fedavg", "local"], seed=range(2), **SMALL)
    loaded = florets.load(sweep.folder)
    assert isinstance(loaded, florets.Sweep)
    lines = (sweep.folder / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 4


def test_the_caller_keeps_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        florets.run("quickstart", **SMALL)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        florets.runn  # noqa: B018 - the access is what is tested
    assert "run" in dir(florets)
    assert sys.modules["florets"].__version__


def test_importing_florets_loads_nothing_heavy() -> None:
    heavy = ("numpy", "torch", "flwr", "hydra", "pandas", "matplotlib", "scipy", "sklearn", "yaml")
    code = f"import florets, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
