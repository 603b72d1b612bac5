"""The public namespace: its names, their docstrings, and that pages, examples and skeletons use nothing else."""

import ast
import hashlib
import inspect
import json
import re
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
from florets.strategies import STRATEGIES, module_of
from tests.pages import blocks

ROOT = Path(__file__).parents[1]

NAMES = [
    *("Advice", "Anchored", "Client", "ConfigError", "Dataset", "Experiment", "Federation", "Groups"),
    *("LinearTerm", "ManyModels", "Method", "Objective", "OneModel", "PerClient", "Plan", "Proximal", "Round"),
    *("Run", "Settings", "Shard", "State", "Steps", "Strategy", "Sweep", "Term", "Update", "Weighted"),
    *("__version__", "advise", "apps", "check", "discover", "export", "handler", "load"),
    *("prepare", "reproduce", "run", "setting", "strategies", "sweep", "tune"),
]


def test_the_public_names_are_these() -> None:
    assert sorted(florets.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_and_so_have_its_methods(name: str) -> None:
    found = getattr(florets, name)
    # A type alias has none.
    assert inspect.getdoc(found) or name == "Steps"
    if isinstance(found, type):
        methods = [member for key, member in vars(found).items() if not key.startswith("_") and callable(member)]
        assert not [method for method in methods if not inspect.getdoc(method)]


def test_the_strategies_are_attributes_by_their_class_names() -> None:
    assert florets.strategies.CLoVE(k=4).k == 4
    assert set(STRATEGIES.values()) <= set(dir(florets.strategies))
    with pytest.raises(AttributeError, match="has no attribute 'Clove'; its strategies are CLoVE, IFCA"):
        _ = florets.strategies.Clove
    # The type checker's imports are those of the registry.
    tree = ast.parse((ROOT / "strategies" / "__init__.py").read_text(encoding="utf-8"))
    imported = {node.module: node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    expected = {module_of(folder): name for folder, name in STRATEGIES.items()}
    assert {module: name for module, name in imported.items() if module.startswith("florets.")} == expected


def _private(code: str) -> list[str]:
    """Return what some code imports of the package beside its public names."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("florets"):
            found.append(f"from {node.module}")
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("florets.")]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "florets":
            found += [] if node.attr in NAMES else [node.attr]
    return found


def test_examples_skeletons_notebooks_and_pages_use_the_public_names_alone() -> None:
    code = {str(block): block.code for block in blocks() if block.language == "python"}
    for file in (*(ROOT / "examples").rglob("*.py"), *(ROOT / "commands" / "templates").rglob("*.py.md")):
        code[str(file)] = re.sub(r"\{\{(\w+)\}\}", r"\1", file.read_text(encoding="utf-8"))
    for file in (ROOT / "examples").rglob("*.ipynb"):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code[str(file)] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert {place: names for place, text in code.items() if (names := _private(text))} == {}


def test_the_zoo_uses_public_names_and_the_documented_parts_alone() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    parts = re.findall(r"`(florets\.[\w.]+)`", page.partition("## Messages of your own")[2].partition("\n## ")[0])
    known = ("florets.zoo.", *(f"{part}." for part in parts))
    for file in sorted((ROOT / "zoo").rglob("*.py")):
        found = [name.removeprefix("from ") for name in _private(file.read_text(encoding="utf-8"))]
        assert not [name for name in found if name != "florets" and not f"{name}.".startswith(known)], file


def test_the_package_is_imported_without_its_parts_and_authors_need_no_servers_packages_on_a_node() -> None:
    code = """
import sys
import florets
heavy = ("numpy", "torch", "flwr", "hydra", "pandas", "matplotlib", "scipy", "sklearn", "yaml")
assert not [name for name in heavy if name in sys.modules]
sys.modules.update(dict.fromkeys(["scipy", "sklearn", "matplotlib", "jinja2", "hydra", "pandas", "omegaconf"]))
florets.Strategy, florets.Method, florets.handler, florets.strategies.FedAvg
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


SMALL = {"num_rounds": 2, "pictures": False, "quiet": True}


def _digests(folder: Path) -> dict[str, str]:
    names = ("models.safetensors", "clients.csv", "loss_matrix.csv", "clusters.safetensors")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def test_the_command_and_the_function_leave_equal_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["experiment=quickstart", *(f"{key}={str(value).lower()}" for key, value in SMALL.items())]) == 0
    (folder,) = [path.parent for path in (tmp_path / "results").rglob("summary.json")]
    by_command = _digests(folder)
    run = florets.run("quickstart", **SMALL)
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
