"""The import law: which folder may know which."""

import ast
import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import florets
from florets.strategies import STRATEGIES

ROOT = Path(__file__).parents[1]
OURS = (
    *("api", "commands", "papers", "studies", "engines", "reports", "server_app", "client_app"),
    *("strategies", "zoo", "task", "conf", "deploy"),
)
IN_BUNDLE = ("client_app", "server_app", "strategies", "zoo", "task", "conf", "reports", "studies")
"""What Flower sends to the nodes of a federation; pyproject.toml names these folders."""

PUBLIC = {f"florets.{name}" for name, home in florets._HOMES.items() if home.startswith(("strategies.", "task."))}
"""Public names by which a method is written."""

# Of our own folders and of the heavy packages, what each folder may import anywhere in its files.
_ROUND = {
    *("flwr", "numpy"),
    *("florets.task.wire", "florets.task.tested", "florets.task.randomness", "florets.task.settings"),
    *("florets.task.keys", "florets.task.device", "florets.task.training.settings"),
}
ALLOWED = {
    "strategies/core": {"florets.strategies.core", "florets.task.device", "numpy", "scipy", "sklearn"},
    "strategies/base": {
        *("florets.strategies.base", "florets.strategies.core", "florets.strategies.settings"),
        *("florets.strategies.coverage", "florets.strategies.layers.compose"),
        *("florets.strategies.shared.first_round", "florets.task.given", *_ROUND),
    },
    # The machinery composes layers and the first assignment when a run begins; they import it.
    "strategies/layers": {
        *("florets.strategies.layers", "florets.strategies.base", "florets.strategies.core"),
        *("florets.strategies.coverage", "florets.strategies.settings"),
        *_ROUND,
    },
    "strategies/shared": {
        *("florets.strategies.shared", "florets.strategies.base", "florets.strategies.core"),
        *("florets.strategies.settings", *_ROUND),
    },
    "strategies": {"florets.strategies", "scipy", *_ROUND},
    "zoo": {
        *("florets.zoo", "florets.strategies.base", "florets.strategies.core", "florets.strategies.shared"),
        *("florets.strategies.settings", "scipy", "sklearn", *_ROUND, *PUBLIC),
        # What clients do is in the same file.
        *("florets.client_app", "florets.task.training", "florets.task.layers", "florets.task.descriptors", "torch"),
    },
    "task": {
        *("florets.task", "numpy", "torch", "scipy", "sklearn", "pandas"),
        "cloudpickle",
    },
    # A message is a dataclass: that of a table's description belongs to tables.
    "task/wire": {
        *("florets.task.wire", "florets.task.tested", "flwr", "numpy"),
        *("florets.task.data.tables.description", "florets.task.data.tables.names"),
    },
    "client_app": {"florets.client_app", "florets.task", "flwr", "torch", "numpy"},
    "server_app": {
        *("florets.server_app", "florets.reports", "florets.strategies", "florets.task", "florets.conf"),
        *("flwr", "numpy"),
    },
    "engines": {
        *("florets.engines", "florets.server_app", "florets.reports"),
        *("florets.strategies", "florets.task", "florets.conf", "flwr"),
    },
    "studies": {
        *("florets.studies", "florets.engines", "florets.server_app", "florets.reports", "florets.strategies"),
        *("florets.task", "florets.conf", "hydra", "omegaconf", "numpy", "scipy", "pandas"),
    },
    "papers": {
        *("florets.papers", "florets.studies", "florets.engines", "florets.server_app", "florets.reports"),
        *("florets.strategies", "florets.task", "florets.conf", "numpy", "pandas", "matplotlib"),
    },
    "api": {
        *("florets.api", "florets.papers", "florets.studies", "florets.engines", "florets.server_app"),
        *("florets.reports", "florets.strategies", "florets.task", "florets.conf"),
        *("flwr", "numpy", "pandas", "torch"),
    },
    "commands": {
        *("florets.commands", "florets.api", "florets.papers", "florets.studies", "florets.deploy"),
        *(
            "florets.engines",
            "florets.server_app",
            "florets.reports",
            "florets.strategies",
            "florets.task",
            "florets.conf",
        ),
    },
    "reports": {
        *("florets.reports", "florets.strategies", "florets.task", "florets.conf"),
        *("numpy", "pandas", "scipy", "matplotlib"),
    },
    # How tables are prepared is checked where the file that says so is read.
    "conf": {
        *("florets.task.data.tables.preprocessing", "florets.task.registry"),
        *("florets.conf", "florets.task.settings", "florets.task.keys", "florets.task.training.settings"),
        *("florets.strategies.STRATEGIES", "florets.strategies.settings", "florets.strategies.registry"),
        "florets.strategies.coverage",
        *("hydra", "omegaconf"),
    },
    "deploy": {
        *("florets.deploy", "florets.conf", "florets.engines", "florets.reports"),
        *("florets.task", "omegaconf", "numpy", "sklearn"),
    },
}
HEAVY = (
    *("flwr", "torch", "torchvision", "numpy", "scipy", "sklearn", "hydra", "omegaconf", "matplotlib"),
    *("pandas", "cloudpickle"),
)
# Loaded when first needed: they cost a second or more, and a client may lack the extra.
LAZY = {
    "client_app": ("sklearn",),
    "task": ("sklearn", "scipy", "pandas", "cloudpickle"),
    "studies": ("scipy", "pandas"),
    "papers": ("pandas",),
    "api": ("torch", "pandas", "flwr"),
    "reports": ("scipy", "matplotlib"),
    "deploy": ("sklearn",),
}
DRAWING = ("figures", "run_figures")
"""Modules of reports/ that import matplotlib; others in reports/ and api/ import them where they draw."""
WRITES_EVENTS = "server_app/tracker_stores.py"
"""PyTorch's writer of TensorBoard's files."""
WIRES_BOTH_APPS = "engines/engine.py"
STARTS_STUDIES = "server_app/app.py"
"""Flower's entry point, which starts what is asked of it: a run, or advice."""

ALGORITHMS = sorted(
    path.stem
    for path in (ROOT / "strategies").iterdir()
    if path.stem
    not in {"__init__", "__pycache__", "settings", "registry", "coverage", "base", "layers", "core", "shared"}
)
ZOO = sorted(path.stem for path in (ROOT / "zoo").iterdir() if path.stem not in ("__init__", "__pycache__"))
"""The methods of `zoo/`, and what they share."""
REGISTRY = "strategies/__init__.py"
"""Knows the methods of `zoo/`, by their names."""
MAY_BUILD_ON: dict[str, set[str]] = {"fedrc": {"fedem"}}
"""Algorithms that are another one with something added, and that one."""

CLIENT_HALF = {
    *("florets.client_app", "florets.task", "flwr", "torch", "numpy", "sklearn"),
    *("florets.strategies.shared.client", "florets.strategies.shared.messages"),
}
"""Law of a method's `client.py`, which runs in a client's process; its own messages are allowed as well."""
MESSAGES = {"florets.task.wire", "florets.strategies.shared.messages", "flwr", "numpy"}
"""Law of a method's `messages.py`, which both halves import."""


def files() -> list[Path]:
    return sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements, those inside others too; expressions, which are most of a tree, hold no import."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, part, ()))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a thing comes from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def area(path: Path) -> str:
    return max((folder for folder in ALLOWED if name_of(path).startswith(f"{folder}/")), key=len)


def is_under(name: str, packages: object) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)  # type: ignore[attr-defined]


def allowed(path: Path) -> set[str]:
    found = set(ALLOWED[area(path)])
    if name_of(path).startswith("strategies/") and path.stem in ("client", "messages"):
        own = {f"florets.strategies.{path.parent.name}.{half}" for half in ("client", "messages")}
        return own | (CLIENT_HALF if path.stem == "client" else MESSAGES)
    if name_of(path) == REGISTRY:
        found.add("florets.zoo")
    if name_of(path) == WIRES_BOTH_APPS:
        found.add("florets.client_app")
    if name_of(path) == WRITES_EVENTS:
        found.add("torch.utils.tensorboard")
    if name_of(path) == STARTS_STUDIES:
        found.add("florets.studies.advise")
    return found


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    return tuple(imports(tree_of(path)))


def test_a_file_imports_only_what_its_folder_may() -> None:
    wrong = {
        name_of(path): found
        for path in files()
        if (
            found := [
                module
                for module in imports_of(path)
                if module != "florets"
                and is_under(module, ("florets", *HEAVY))
                and not is_under(module, allowed(path))
            ]
        )
    }
    assert not wrong, f"must not be imported there: {wrong}"


def test_slow_packages_are_imported_inside_functions() -> None:
    wrong, drawing = {}, [f"florets.reports.{name}" for name in DRAWING]
    for name, path in modules().items():
        folder = "client_app" if path.stem == "client" else area(path).split("/")[0]
        if (lazy := LAZY.get(folder, ())) and not is_under(name, drawing):
            lazy = (*lazy, *drawing) if "matplotlib" in lazy else lazy
            nodes = [node for node in tree_of(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
            if found := [module for module in imports(ast.Module(nodes, [])) if is_under(module, lazy)]:
                wrong[name_of(path)] = found
    assert not wrong


def test_a_task_loads_no_slow_package_through_others() -> None:
    """A module is loaded with the packages that it lies in and all that it imports outside of functions."""
    known, loaded, waiting = modules(), set(), ["florets.task.task"]
    while waiting:
        name = waiting.pop()
        if not name or name in loaded:
            continue
        loaded.add(name)
        waiting.append(name.rpartition(".")[0])
        if name in known:
            nodes = [node for node in tree_of(known[name]).body if isinstance(node, ast.Import | ast.ImportFrom)]
            waiting.extend(imports(ast.Module(nodes, [])))
    assert {"florets.task.spec", "torch"} <= loaded
    assert not loaded & {"flwr", *LAZY["task"]}


def test_a_file_holds_one_idea() -> None:
    assert not [name_of(path) for path in files() if path.name.endswith("utils.py")]
    # Flower leaves such files out of the app.
    assert not [name_of(path) for path in files() if path.name.startswith("test_")]


def test_a_modules_first_line_says_what_it_is() -> None:
    """And not what it is about: no line that begins with a question word."""
    everywhere = [*files(), *(ROOT / "tests").glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    question = re.compile(r'"""(What|How|Where|Who|When|Whatever) ')
    assert not [name_of(path) for path in everywhere if question.match(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, *ZOO])
def test_an_algorithm_knows_no_other_one(algorithm: str) -> None:
    own = [path for path in files() if name_of(path).startswith((f"strategies/{algorithm}/", f"zoo/{algorithm}"))]
    known = {algorithm, "shared", *MAY_BUILD_ON.get(algorithm, ())}
    others = {f"florets.strategies.{name}" for name in set(ALGORITHMS) - known}
    others |= {f"florets.zoo.{name}" for name in set(ZOO) - known}
    found = [module for path in own for module in imports_of(path)]
    assert not [module for module in found if is_under(module, others)]


def outside() -> list[Path]:
    return [path for path in files() if not name_of(path).startswith(("strategies/", "zoo/"))]


def asked_by_name(tree: ast.AST) -> Iterator[str]:
    """Comparisons with a registry name; `local` is also the name of an engine."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            names = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)} & set(STRATEGIES)
            text = ast.unparse(node)
            if names - ({"local"} if "engine" in text else set()):
                yield text


def test_nobody_outside_of_the_strategies_knows_one_of_them() -> None:
    algorithms = {"florets.zoo", *(f"florets.strategies.{name}" for name in ALGORITHMS)}
    imported = {name_of(path): [m for m in imports_of(path) if is_under(m, algorithms)] for path in outside()}
    assert not {name: found for name, found in imported.items() if found}
    # Advice compares methods by their names: that is what it is about.
    general = [path for path in outside() if not name_of(path).startswith("studies/advise/")]
    named = re.compile(f"[\"'](?:{'|'.join(STRATEGIES)})[\"']")
    by_name = {
        name_of(path): list(asked_by_name(tree_of(path))) for path in general if named.search(path.read_text())
    }
    wrong = {name: found for name, found in by_name.items() if found}
    assert not wrong, "ask the settings or the strategy; the default's name is registry.DEFAULT"


def modules() -> dict[str, Path]:
    names = {f"florets.{name_of(path).removesuffix('.py').replace('/', '.')}": path for path in files()}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def test_no_module_imports_itself_through_others() -> None:
    """Imports for type checking alone count as well: two modules that know each other are one idea in two places."""
    known = modules()
    graph = {}
    for name, path in known.items():
        named = set()
        for target in imports_of(path):
            module = target if target in known else target.rpartition(".")[0]
            named |= {module} & known.keys()
        graph[name] = named - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_what_flower_sends_imports_nothing_that_it_does_not_send() -> None:
    known = modules()
    found, waiting = set[str](), ["florets.server_app.app", "florets.client_app.app"]
    waiting += [name for name in known if is_under(name, ("florets.strategies", "florets.zoo", "florets.task"))]
    while waiting:
        name = waiting.pop()
        if name in known and name not in found:
            found.add(name)
            waiting += [one for target in imports_of(known[name]) for one in (target, target.rpartition(".")[0])]
    assert {name.split(".")[1] for name in found} == set(IN_BUNDLE)


def test_our_modules_are_imported_under_the_packages_name() -> None:
    found = {name_of(path): [module for module in imports_of(path) if is_under(module, OURS)] for path in files()}
    short = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(OURS)})\b", re.MULTILINE)
    found |= {name_of(path): short.findall(path.read_text()) for path in (ROOT / "tests").glob("*.py")}
    assert not {name: modules for name, modules in found.items() if modules}, "write florets.<folder>"


def test_no_module_is_loaded_under_two_names() -> None:
    """With all that the other tests have loaded in this process."""
    for name in ("commands.main", "server_app.experiment", "client_app.app"):
        importlib.import_module(f"florets.{name}")
    places = tuple(str(ROOT / folder) for folder in OURS)
    files = [str(getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    ours = [file for file in files if file.startswith(places)]
    assert len(ours) > 50
    assert sorted(file for file in set(ours) if ours.count(file) > 1) == []


def test_the_law_knows_every_folder() -> None:
    with_code = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("*/__init__.py")}
    assert with_code - {"tests", "benchmarks", "florets"} == set(OURS)


def test_the_picture_is_drawn_from_the_imports() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    assert script["PLACE"].read_text(encoding="utf-8") == script["draw"](), "run: python docs/architecture.py"
