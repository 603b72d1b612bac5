"""Files of the repository that no program reads until it is too late: citation, changelog, workflows, constraints."""

import re
import tomllib
from pathlib import Path

import yaml

from tests.flower_tools import SUPPORTED

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_citation_and_changelog_name_the_version() -> None:
    version = PROJECT["version"]
    citation = yaml.safe_load(_read("CITATION.cff"))
    assert citation["version"] == version
    assert f"version = {{{version}}}" in _read("CITATION.bib")
    assert f"\n## {version} - {citation['date-released']}\n" in _read("CHANGELOG.md")


def test_badges_say_what_the_metadata_say() -> None:
    badges = re.findall(r"<text [^>]*>([^<]+)</text>", _read("docs/badges.svg"))
    pythons = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert badges[1::2] == ["Apache-2.0", ", ".join(pythons), ", ".join(SUPPORTED), "mypy strict"]


def test_workflows_call_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", _read("Makefile"), re.MULTILINE))
    called = {
        step["run"].split()[1]
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        for step in job.get("steps", ())
        if step.get("run", "").startswith("make ")
    }
    assert {"check", "test", "slow", "dist"} <= called <= targets


def test_constraints_pin_every_requirement_and_name_no_host() -> None:
    lines = [line for line in _read("constraints.txt").splitlines() if not line.startswith("#")]
    pinned = {line.partition("==")[0] for line in lines}
    wanted = [line for extra in PROJECT["optional-dependencies"].values() for line in extra] + PROJECT["dependencies"]
    names = {re.split(r"[\[<>=]", line)[0].lower() for line in wanted} - {"florets"}
    assert names <= pinned
    assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.+]+( ; .+)?", line) for line in lines)
