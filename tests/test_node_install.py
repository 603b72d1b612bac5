"""Packages of a node: it trains without those of the server."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import florets
from florets.__main__ import main
from florets.conf import extras
from florets.conf.problems import ConfigError
from florets.deploy.demo import follow
from florets.deploy.federation import Federation

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FLOWERS = {"rich", "yaml"}
"""Modules that Flower needs, too."""


def test_the_command_api_and_server_app_name_the_extra_that_they_need(monkeypatch, capsys) -> None:
    wanted = {line.partition(">")[0] for line in PROJECT["optional-dependencies"]["server"]}
    assert wanted == extras._BRINGS["server"].keys()
    monkeypatch.setitem(sys.modules, "hydra", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for name in ("run", "check"):
        monkeypatch.delitem(florets.__dict__, name, raising=False)
    lacks = 'needs hydra-core and jinja2; pip install "florets[server]" installs it.'
    assert main() == 2
    assert capsys.readouterr().err == f"florets: the command florets: {lacks}\n"
    for use in (lambda: florets.run, lambda: florets.check, lambda: florets.apps.server):
        with pytest.raises(ConfigError, match="needs hydra-core and jinja2"):
            use()
    assert florets.apps.client is not None


@pytest.mark.slow
def test_nodes_train_without_the_servers_packages(tmp_path: Path, monkeypatch) -> None:
    blocked = sorted({*extras._BRINGS["server"].values(), "omegaconf", "pandas", "sklearn"} - FLOWERS)
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
