"""Every code block of README.md, docs and examples/*/README.md is run by a test, or is marked as output.

The convention: the words after a block's fence say what is done with it, and a new page needs nothing else. On the
site only the first word shows, as the language.

| fence                    | what is done with the block                                                        |
|--------------------------|------------------------------------------------------------------------------------|
| ```bash, ```bash slow    | run as it stands, in the slow suite                                                 |
| ```bash dry              | `florets`, `flwr`, `make`, `pip` and `python` are called with what the shell would  |
|                          | give them, and refuse what they would refuse, but do no work; other programs are    |
|                          | not allowed                                                                         |
| ```python                | run as it stands: the README's in the default suite, others in the slow one         |
| ```<language> name.ext   | saved as that file (Python, YAML, TOML, ...) before the page's commands are run     |
| ```text                  | not run: output, or a drawing; so is ```console-output. No command may stand there  |

The blocks of a page are run in their order, in one empty folder and one shell.
`florets` is on the PATH; PROJECT is the project's folder, PORT and NODE_PORT are free ports.
What a reader does not see stands in comments right above a block, each on a line of its own:

    <!-- before: python -m tests.page_data -->     commands that are run before it
    <!-- prints: ARI 1.00 -->                      what its page's commands must print
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from florets.engines import flower_processes
from tests.page_calls import check_all
from tests.pages import HOW, OUTPUT, ROOT, Block, blocks, pages

_SLOW_SECONDS = 1800
_COMMAND = re.compile(r"\s*(\$ |florets |flwr |make |pip |python3? |flower-\w+ )")


def _in_shell(*how: str) -> list[Block]:
    return [block for block in blocks() if block.language == "bash" and block.how in how]


def _pages_with(*how: str) -> list[Path]:
    return sorted({block.page for block in _in_shell(*how)})


def test_every_block_is_run_or_is_output_and_is_closed() -> None:
    for page in pages():
        fences = [
            line.strip() for line in page.read_text(encoding="utf-8").splitlines() if line.strip().startswith("```")
        ]
        assert fences[1::2] == ["```"] * len(blocks(page)), f"{page}: a fence is not closed"
    for block in blocks():
        if block.language == "bash":
            assert block.how in HOW, f"{block}: after `bash` comes nothing, `slow` or `dry`"
        elif block.language in OUTPUT:
            typed = [line for line in block.code.splitlines() if _COMMAND.match(line)]
            assert not typed, (
                f"{block}: {typed[0]!r} is a command: mark the block as `bash`, `bash slow` or `bash dry`"
            )
        elif block.language != "python" or block.how:
            assert re.fullmatch(r"[\w-]+\.\w+", block.how), f"{block}: name the file that the block is saved as"


@pytest.mark.parametrize("block", _in_shell("dry"), ids=str)
def test_commands_are_taken_by_the_programs_that_they_call(block: Block, tmp_path: Path) -> None:
    check_all(block.commands, tmp_path)


@pytest.mark.parametrize("wrong", ["florets no_such_key=1", "pip install florets[none]", "curl https://flower.ai"])
def test_a_command_that_would_be_refused_is_seen(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - each in the words of the program that refuses
        check_all(wrong, tmp_path)


def _save_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.language != "bash" and block.how:
            (folder / block.how).write_text(f"{block.code}\n", encoding="utf-8")


def _run(page: Path, how: tuple[str, ...], folder: Path, timeout: float) -> None:
    """Run a page's commands in one shell, and look for what they must print."""
    chosen = [block for block in blocks(page) if block.language == "bash" and block.how in how]
    _save_files(page, folder)
    program = folder / "bin" / "florets"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m florets "$@"\n')
    program.chmod(0o755)
    script, log = folder / "page.sh", folder / "page.log"
    # However the script ends, what it has started ends with it.
    head = "set -eu\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
    script.write_text(head + "".join(block.commands for block in chosen), encoding="utf-8")
    port = flower_processes.free_port()
    path = [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    settings = {"PROJECT": str(ROOT), "PORT": str(port), "NODE_PORT": str(port + 1), "PYTHONPATH": str(ROOT)}
    home = {"HOME": str(folder), "PATH": os.pathsep.join(path)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", str(script)],
            cwd=folder,
            env={**os.environ, **settings, **home},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(timeout)
        finally:
            flower_processes.end(process)
    said = log.read_text(encoding="utf-8")
    assert code == 0, said[-5000:]
    for block in chosen:
        for text in block.prints:
            assert text in said, f"{block}: {text!r} is not in\n{said[-5000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", _pages_with("", "slow"), ids=lambda page: page.name)
def test_a_pages_commands_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    for name in ("openssl", "ssh-keygen", "curl"):
        if any(name in block.code for block in blocks(page)) and shutil.which(name) is None:
            pytest.skip(f"{page.name} needs {name}")
    _run(page, ("", "slow"), tmp_path, _SLOW_SECONDS)


def _python() -> list[Any]:
    """Return the blocks of Python; the README's alone in the default suite."""
    found = [block for block in blocks() if (block.language, block.how) == ("python", "")]
    return [
        block if block.page.name == "README.md" else pytest.param(block, marks=pytest.mark.slow) for block in found
    ]


@pytest.mark.parametrize("block", _python(), ids=str)
@pytest.mark.usefixtures("no_pictures")
def test_python_runs_as_it_stands(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block.code, str(block), "exec"), {"__name__": "page"})


def test_every_link_leads_somewhere() -> None:
    for page in pages():
        for link in re.findall(r"\]\(((?!http)[^)]+)\)", page.read_text(encoding="utf-8")):
            path, _, title = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: {link}"
            if title:
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                # As GitHub names a heading.
                names = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
                assert title in names, f"{page}: {link}"
