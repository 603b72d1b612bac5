"""Security: input from the network, the disk or a configuration runs no code and leads out of no folder."""

import ast
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_from_json, config_to_json
from florets.conf.saved import results_folder, saved_config
from florets.conf.schema import Config
from florets.strategies.base.encoding import decode
from florets.strategies.base.exchange import clean_reason
from tests.test_architecture import OURS

ROOT = Path(__file__).parents[1]
OWN_PROCESSES = ("engines/workers.py", "engines/worker_grid.py", "task/shared_file.py", "studies/sweep/launch.py")
"""Files that pickle what a command and the processes that it started tell each other: by pipes, a file without a name
or a temporary folder that only its user can open."""
GIVEN = "task/given.py"
"""Pickles what its own user gives it in Python, and reads it from a run's folder with `trust=true` alone."""
OWN_SOURCE = "strategies/registry.py"
"""Executes statements of this project's own strategies, to read their settings without importing Flower."""
RUNS_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile"}
LOADS = {("np", "load"), ("numpy", "load"), ("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load")}
LOADS |= {("os", "system"), ("os", "popen"), ("yaml", "full_load")}
# Most files have no such word, and need not be parsed.
SUSPECT = re.compile(rf"\b({'|'.join({*RUNS_CODE, *CALLS, *(name for _, name in LOADS), 'shell'})})\b")


def is_safe(call: ast.Call) -> bool:
    """Say whether a call's arguments keep it from running code that it reads."""
    loaders = {word for argument in call.args[1:] for word in re.findall(r"\w+Loader", ast.unparse(argument))}
    keywords = {ast.unparse(word) for word in call.keywords}
    if loaders:
        # That of papers/item.py is a BaseLoader.
        return loaders <= {"BaseLoader", "SafeLoader", "_Loader"}
    return bool(keywords & {"allow_pickle=False", "weights_only=True"})


@pytest.mark.parametrize("folder", OURS)
def test_nothing_that_is_read_can_run_code(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not SUSPECT.search(text := path.read_text(encoding="utf-8")):
            continue
        allowed = {"pickle"} if name in OWN_PROCESSES else RUNS_CODE if name == GIVEN else set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not (RUNS_CODE - allowed) & {name.split(".")[0] for name in names}, path
            if isinstance(node, ast.Call):
                assert not any(word.arg == "shell" for word in node.keywords), path
                if isinstance(node.func, ast.Name):
                    assert node.func.id not in CALLS or name == OWN_SOURCE, f"{path}:{node.lineno}"
                elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                    called = (node.func.value.id, node.func.attr)
                    assert called not in LOADS or is_safe(node), f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc", "a\nb"])
def test_an_experiments_name_leads_nowhere_else(name: str) -> None:
    values = json.loads(config_to_json(Config()))
    values["experiment"] = name
    with pytest.raises(ConfigError, match="must be a preset's name"):
        config_from_json(json.dumps(values))


@pytest.mark.parametrize(
    "override",
    ["task.data=../../x:y", "strategy.shared_layers=['../..']"],
)
def test_results_stay_in_their_folder_whatever_is_overridden(tmp_path: Path, override: str) -> None:
    config = dataclasses.replace(compose([]), results_dir=str(tmp_path))
    folder = results_folder(config, [override])
    assert folder.resolve() == folder
    assert folder.is_relative_to(tmp_path)


def test_a_run_folder_with_another_configuration_language_is_refused(tmp_path: Path) -> None:
    for text in (
        "!!python/object/apply:os.abort []",
        "- 1",
        "a: [",
        "experiment: ../../x",
        "a: 2020-99-99",
        "[" * 500,
    ):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(ConfigError):
            saved_config(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        ["object", ["os:system", {"command": "true"}]],
        ["object", ["florets.strategies.base.exchange:send", {}]],
        ["object", ["strategies.no_such_module:X", {}]],
        ["array", "missing"],
        {"unknown": 1},
    ],
)
def test_a_state_builds_nothing_but_the_strategies_own_dataclasses(data: object) -> None:
    with pytest.raises(ValueError, match=r"is not a dataclass|missing|holds no"):
        decode(data, {"there": np.zeros(1)})


def test_what_a_client_says_can_forge_no_line_of_the_log() -> None:
    reason = "first\nERROR forged\r\x1b]0;title\x07\x1b[2Jlast\u202e"
    assert clean_reason(reason) == "?]0;title?last?"
    assert len(clean_reason("x" * 10**6)) == 500
    assert (
        clean_reason("<class 'florets.task.consent.Refused'>:<'this node's owner'>") == "Refused: this node's owner"
    )
