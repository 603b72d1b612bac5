"""The public namespace: its names, their docstrings, and that pages, examples and skeletons use nothing else."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import florets
from florets.strategies import STRATEGIES
from tests.pages import blocks

ROOT = Path(__file__).parents[1]

NAMES = [
    "Advice",
    "Anchored",
    "Client",
    "ConfigError",
    "Dataset",
    "Experiment",
    "Federation",
    "Groups",
    "LinearTerm",
    "ManyModels",
    "Method",
    "Objective",
    "OneModel",
    "PerClient",
    "Plan",
    "Proximal",
    "Round",
    "Run",
    "Settings",
    "Shard",
    "State",
    "Strategy",
    "Sweep",
    "Term",
    "Update",
    "Weighted",
    "__version__",
    "advise",
    "apps",
    "check",
    "dataset",
    "discover",
    "export",
    "extend",
    "handler",
    "load",
    "model",
    "partition",
    "prepare",
    "reproduce",
    "run",
    "setting",
    "strategies",
    "sweep",
    "tune",
]

WRITTEN_FOR_OTHERS = [
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "commands" / "templates").rglob("*.py.txt")),
]


def test_the_public_names_are_these() -> None:
    assert sorted(florets.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_and_so_have_its_methods(name: str) -> None:
    found = getattr(florets, name)
    assert inspect.getdoc(found)
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
    expected = {f"florets.strategies.{folder}.strategy": name for folder, name in STRATEGIES.items()}
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


@pytest.mark.parametrize("file", WRITTEN_FOR_OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_written_for_others_uses_the_public_names_alone(file: Path) -> None:
    code = re.sub(r"\{\{(\w+)\}\}", r"\1", file.read_text(encoding="utf-8"))
    assert _private(code) == []


@pytest.mark.parametrize("file", sorted((ROOT / "examples").rglob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebooks_use_the_public_names_alone(file: Path) -> None:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert [name for cell in cells if cell["cell_type"] == "code" for name in _private("".join(cell["source"]))] == []


def test_the_pages_use_the_public_names_alone() -> None:
    found = {str(block): _private(block.code) for block in blocks() if block.language == "python"}
    assert {block: names for block, names in found.items() if names} == {}


def test_the_package_is_imported_without_its_parts_and_authors_need_no_servers_packages_on_a_node() -> None:
    code = """
import sys
import florets
assert not sys.modules.keys() & {"torch", "flwr", "numpy", "hydra"}
sys.modules.update(dict.fromkeys(["scipy", "sklearn", "matplotlib", "jinja2", "hydra", "pandas", "omegaconf"]))
florets.Strategy, florets.Method, florets.handler, florets.strategies.FedAvg
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
