"""The import law: which folder may know which."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("server_app", "client_app", "strategies", "task", "conf", "deploy")
LONGEST_FILE = 300

# Of our own folders and of the heavy packages, what each folder may import anywhere in its files.
ALLOWED = {
    "strategies/core": {"strategies.core", "numpy", "scipy", "sklearn"},
    "strategies": {"strategies", "flwr", "numpy", "task.wire", "task.randomness"},
    "task": {"task", "numpy", "torch", "torchvision", "scipy", "sklearn"},
    "task/wire": {"task.wire", "flwr", "numpy"},
    "client_app": {"client_app", "task", "flwr", "torch", "numpy"},
    "server_app": {"server_app", "strategies", "task", "conf", "flwr", "hydra", "omegaconf", "numpy", "matplotlib"},
    "conf": {"conf", "hydra", "omegaconf"},
    "deploy": {"deploy", "server_app", "task", "numpy"},
}
HEAVY = ("flwr", "torch", "torchvision", "numpy", "scipy", "sklearn", "hydra", "omegaconf", "matplotlib", "ray")
# Loaded when first needed: they cost a second or more, and a client may lack the extra.
LAZY = {"client_app": ("sklearn", "torchvision", "scipy"), "task": ("sklearn", "torchvision", "scipy")}
WIRES_BOTH_APPS = "server_app/main.py"


def files() -> list[Path]:
    return sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a thing comes from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def area(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return max((folder for folder in ALLOWED if name.startswith(f"{folder}/")), key=len)


def is_under(name: str, packages: object) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_imports_only_what_its_folder_may(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    allowed = set(ALLOWED[area(path)]) | ({"client_app"} if name == WIRES_BOTH_APPS else set())
    wrong = [
        module
        for module in imports(ast.parse(path.read_text(encoding="utf-8")))
        if is_under(module, (*OURS, *HEAVY)) and not is_under(module, allowed)
    ]
    assert not wrong, f"{name} must not import {wrong}"


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_slow_packages_are_imported_inside_functions(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_import_time = ast.Module([n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)], [])
    lazy = LAZY.get(area(path).split("/")[0], ())
    assert not [module for module in imports(at_import_time) if is_under(module, lazy)]


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_holds_one_idea(path: Path) -> None:
    assert path.name != "utils.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def test_the_law_knows_every_folder() -> None:
    with_code = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("*/__init__.py")}
    assert with_code - {"tests", "benchmarks"} == set(OURS)
