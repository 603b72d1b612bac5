"""What the README shows is run as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from florets.strategies.base.report import RoundReport
from tests.fakes import FakeClients, models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
SHELL = re.findall(r"```bash\n(.*?)```", README, re.S)


def test_the_example_of_ones_own_task_finds_its_groups(tmp_path: Path) -> None:
    (tmp_path / "my_task.py").write_text(PYTHON[0], encoding="utf-8")
    (command,) = [block for block in SHELL if "my_task:wine" in block]
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    done = subprocess.run(
        [sys.executable, "-m", "florets.server_app.main", *arguments, "quiet=true", f"results_dir={tmp_path}"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ARI 1.00" in done.stdout


def test_the_example_of_ones_own_strategy_runs() -> None:
    scope: dict[str, object] = {}
    exec(PYTHON[1], scope)
    seen: list[RoundReport] = []
    strategy = scope["EvenOdd"]()  # type: ignore[operator]
    strategy.start(
        FakeClients([0.0, 1.0, 2.0, 3.0]).grid(),
        models(0.0, 0.0),
        num_rounds=1,
        on_round=lambda report, _: seen.append(report),
    )
    assert seen[0].assignment == {"0": 0, "1": 1, "2": 0, "3": 1}


@pytest.mark.parametrize(
    ("page", "link"),
    [
        (page, link)
        for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
        for link in re.findall(r"\]\(((?!http)[^)]+)\)", page.read_text(encoding="utf-8"))
    ],
)
def test_every_link_leads_somewhere(page: Path, link: str) -> None:
    path, _, title = link.partition("#")
    assert (page.parent / path).exists()
    if title:
        assert f"# {title}" in (page.parent / path).read_text(encoding="utf-8").lower()
