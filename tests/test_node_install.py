"""Packages of a node: it trains without those of the server."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from florets.deploy.demo import follow
from florets.deploy.federation import Federation

ROOT = Path(__file__).parents[1]
MODULES = {"scikit-learn": "sklearn", "hydra-core": "hydra", "pyyaml": "", "rich": "", "pillow": "PIL"}
"""Modules whose names are not their packages'; "": Flower needs it, too."""


def _name(requirement: str) -> str:
    return requirement.split(">")[0].split("=")[0].strip()


def _node() -> list[str]:
    lines = (ROOT / "deploy" / "requirements-node.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _project() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


def test_a_node_needs_a_part_of_what_the_project_needs_in_the_same_versions() -> None:
    assert set(_node()) < set(_project())


@pytest.mark.slow
def test_nodes_train_without_the_servers_packages(tmp_path: Path, monkeypatch) -> None:
    """Neither do archives need the packages of tables."""
    kept = {_name(line) for line in _node()} - {"pandas", "scikit-learn"}
    names = [MODULES.get(name, name) for name in map(_name, _project()) if name not in kept]
    blocked = sorted(name for name in names if name)
    assert {"scipy", "sklearn", "matplotlib", "jinja2", "hydra", "pandas"} < set(blocked)
    # Python runs this file at its start. Of the processes of a deployment the nodes' have a home in their kits.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if '/kits/node-' in os.environ.get('FLWR_HOME', ''):\n"
        f"    sys.modules.update(dict.fromkeys({blocked!r}))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    rng = np.random.default_rng(0)
    with Federation(tmp_path / "federation") as federation:
        for number in range(2):
            folder = tmp_path / f"data-{number}"
            folder.mkdir()
            x = rng.normal(size=(120, 6)).astype(np.float32)
            # Two groups with opposite rules.
            y = ((x[:, 0] > 0) ^ (number % 2 == 1)).astype(np.int64)
            np.savez(folder / "data.npz", x=x, y=y)
        federation.add(
            {
                f"node-{number}": {"data-dir": str(tmp_path / f"data-{number}"), "true-cluster": number}
                for number in range(2)
            }
        )
        settings = "strategy=clove k=2 min_clients=2 num_rounds=3 start_timeout=120"
        results = tmp_path / "results"
        run_id = federation.run(ROOT, {"experiment": "own_data", "overrides": settings, "results-dir": str(results)})
        folder = follow(federation, run_id, results)
    assert '"ari": 1.0' in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()[-1]
