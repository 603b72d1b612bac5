"""`florets new`: skeletons that run as they are."""

import io
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.extras import version
from tests.flower_tools import build_fab_from_disk, get_project_config, validate

ROOT = Path(__file__).parents[1]
KINDS = {
    "strategy": {"README.md", "mine.py", "test_mine.py"},
    "project": {
        *("README.md", "pyproject.toml", "mine/__init__.py", "mine/strategy.py", "mine/data.py"),
        *("presets/experiment/mine.yaml", "tests/test_mine.py"),
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A command puts its folder there.
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_has_its_files_and_no_gaps(kind: str, tmp_path: Path) -> None:
    assert main(["new", kind, "mine"]) == 0
    files = {path.relative_to(tmp_path / "mine").as_posix(): path for path in (tmp_path / "mine").rglob("*.*")}
    assert set(files) == KINDS[kind]
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        assert "{{" not in text
        assert "from florets" not in text
        if name.endswith(".py"):
            compile(text, name, "exec")
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "118", "mine"], check=False
    )
    assert done.returncode == 0


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_an_app_is_one_that_flower_takes_and_holds_no_code_but_two_names(tmp_path: Path) -> None:
    assert main(["app", "on/my-app"]) == 0
    folder = tmp_path / "on" / "my-app"
    names = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))).namelist()
    assert names == ["pyproject.toml", "README.md", "my_app.py", ".info/CONTENT"]
    described = get_project_config(folder)
    assert described["project"]["dependencies"] == [f"florets[server]=={version()}"]
    components = described["tool"]["flwr"]["app"]["components"]
    assert all(validate(reference, project_dir=folder) == (True, None) for reference in components.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_skeletons_own_test_and_the_commands_of_its_readme_pass(kind: str, tmp_path: Path) -> None:
    assert main(["new", kind, "mine"]) == 0
    lines = (tmp_path / "mine" / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    ")]
    assert len(commands) >= 3
    for words in commands:
        settings = dict([words.pop(0).split("=")]) if words[0].startswith("FLORETS_") else {}
        program, *arguments = words
        module = ["-m", "florets"] if program == "florets" else []
        if program == "florets" and "--help" not in arguments and "plan" not in arguments:
            arguments = [*(text.replace("seed=0,1,2", "seed=0") for text in arguments), "num_rounds=1"]
        done = subprocess.run(
            [sys.executable, *module, *arguments],
            cwd=tmp_path / "mine",
            env={**os.environ, **settings, "PYTHONPATH": str(ROOT)},
            text=True,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert program != "python" or "warning" not in done.stdout
