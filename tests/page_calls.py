"""Commands of the pages that are read and not carried out: what the shell would pass to each, and whether it fits."""

import importlib.util
import itertools
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from florets.commands import verbs
from florets.commands.main import read_arguments
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.run_config import run_config_overrides
from florets.papers.request import read_request
from florets.server_app.resume import CHANGEABLE
from florets.studies.sweep.keys import expand, read_sweep
from florets.studies.tune import tune_overrides
from tests.flower_tools import parse_config_args
from tests.pages import ROOT

_PROGRAMS = ("florets", "flwr", "make", "pip", "python", "python3")
# Writes what it was called with: the number of words, then each, with an end of its own.
_STAND_IN = """#!/bin/sh
printf '%s\\0' "$#" "${0##*/}" "$@" >> "$CALLS"
"""

Call = tuple[str, list[str]]

_COMPOSED = ("advise", "check", "discover", "plan")
"""Words whose keys are those of a run."""


def check_all(commands: str, folder: Path) -> None:
    """Raise where shell commands call anything that would be refused before it did any work, or call nothing."""
    found = calls(commands, folder)
    assert found, "no command that can be checked"
    for call in found:
        _check(call)


def calls(commands: str, folder: Path) -> list[Call]:
    """Return the programs that shell commands call, with their arguments; any other program is an error.

    Programs that do nothing are left in `folder/bin`.
    """
    for place in (folder / "bin", folder / ".venv" / "bin"):
        place.mkdir(parents=True)
        for name in _PROGRAMS:
            (place / name).write_text(_STAND_IN)
            (place / name).chmod(0o755)
    (folder / ".venv" / "bin" / "activate").touch()
    noted = folder / "calls"
    noted.touch()
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", commands],
        cwd=folder,
        env={"PATH": str(folder / "bin"), "CALLS": str(noted), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    words = iter(noted.read_text().split("\0")[:-1])
    return [(next(words), list(itertools.islice(words, int(count)))) for count in words]


def _check(call: Call) -> None:
    name, arguments = call
    {"florets": _florets, "flwr": _flwr, "make": _make, "pip": _pip}.get(name, _python)(arguments)


def _florets(arguments: Sequence[str]) -> None:
    """Compose what a call would run, and read the arguments of commands on finished runs."""
    word = arguments[0] if arguments else ""
    keys = [text for text in arguments[1:] if not text.startswith("-")]
    if word == "tune":
        places, own = verbs.read(word, arguments[1:])
        tune_overrides(list(places[0]), own.get("trials"), own.get("n_jobs", 1))
    elif word == "reproduce" and keys:
        read_request(keys)
    elif word in _COMPOSED:
        compose(keys)
    elif word in verbs.VERBS:
        verbs.read(word, arguments[1:])
    elif not word or word.startswith("-") or "=" in word:
        given = read_arguments(arguments)
        if any(text.startswith("resume=") for text in given.overrides):
            _beside_resume([text.partition("=")[0] for text in given.overrides])
        else:
            for job in _jobs(given.overrides) if "sweep" in given.options else [list(given.overrides)]:
                compose(job)


def _jobs(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Yield as many jobs of a sweep as it takes to see every value; one seed is as good as another."""
    seen: set[str] = set()
    texts = [text for text in overrides if not text.startswith(("hydra/", "hydra."))]
    for job in expand(read_sweep(texts)):
        if not seen or {text for text in job if not text.startswith("seed=")} - seen:
            seen.update(job)
            yield job


def _beside_resume(keys: Sequence[str]) -> None:
    wrong = [key for key in keys if key not in ("resume", "trust", *CHANGEABLE)]
    if wrong:
        raise ConfigError([f"{key}: cannot stand beside resume" for key in wrong])


def _flwr(arguments: Sequence[str]) -> None:
    command, *rest = arguments
    assert command in ("run", "ls", "log", "stop"), f"flwr {command}: a dry block cannot check it"
    if command != "run":
        return
    run_config = parse_config_args([_after("--run-config", rest)] if "--run-config" in rest else [])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    # Flower refuses others itself.
    assert run_config.keys() <= declared.keys(), run_config
    overrides = run_config_overrides(run_config)
    if resumed := run_config.get("resume"):
        assert os.path.isabs(str(resumed)), f"resume={resumed}: must be an absolute path"
        _beside_resume([text.partition("=")[0] for text in overrides])
        return
    compose(overrides)


def _after(option: str, arguments: Sequence[str]) -> str:
    return arguments[arguments.index(option) + 1]


def _make(arguments: Sequence[str]) -> None:
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _pip(arguments: Sequence[str]) -> None:
    command, *rest = arguments
    assert command == "install", f"pip {command}: a dry block cannot check it"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in rest:
        if word.endswith(".txt"):
            assert (ROOT / word).is_file()
        elif word.startswith("./"):
            assert (ROOT / word / "pyproject.toml").is_file()
        elif not word.startswith("-"):
            wanted = re.fullmatch(r"(?:\.|florets)(?:\[([\w,]+)\])?", word)
            assert wanted is not None, f"pip install {word}: a dry block cannot check it"
            assert set((wanted[1] or "").split(",")) - {""} <= extras.keys()


def _python(arguments: Sequence[str]) -> None:
    if arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1]) is not None
    else:
        assert (ROOT / arguments[0]).is_file()
