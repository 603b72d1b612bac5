"""A provisioned federation on loopback: its SuperLink and SuperNodes, started as their kits start them."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from florets.deploy.provision import SERVER, provision, read_plan
from florets.engines import flower_processes
from florets.engines.flower_run import FlowerRunError, answer_of

HOST = "127.0.0.1"

_START_SECONDS = 180.0


class DeploymentError(RuntimeError):
    """A part of the deployment did not do what it should; the text says which, and ends with its log."""


@dataclass
class Node:
    """A SuperNode: where it reads its data, its node config, and the process while it runs."""

    data: Path
    settings: Mapping[str, str | int]
    process: "subprocess.Popen[bytes] | None" = None


class Federation:
    """Provision nodes, start what their kits and the server's say, and end all of it with the block.

    `root` is a new folder: `federation.yaml`, the kits in `kits`, and `logs`. Each process is started by its kit's
    `start.sh`, as by systemd and compose.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kits = root / "kits"
        self.nodes: dict[str, Node] = {}
        self.superlink: subprocess.Popen[bytes] | None = None
        self.port = flower_processes.free_port()
        self._sites: list[dict[str, str | int]] = []
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Federation":
        self.logs.mkdir(parents=True)
        self.root.chmod(0o700)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()

    @property
    def logs(self) -> Path:
        """Folder with a log for each process."""
        return self.root / "logs"

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    def add(self, nodes: Mapping[str, Mapping[str, str | int]]) -> None:
        """Provision, register and start nodes with these node configs; the first ones bring the server with them."""
        self._sites += [
            {"name": name, "port": flower_processes.free_port(), **config} for name, config in nodes.items()
        ]
        server = {"addresses": [HOST], "port": self.port, "bind": HOST}
        file = self.root / "federation.yaml"
        file.write_text(yaml.safe_dump({"server": server, "nodes": self._sites}, sort_keys=False), encoding="utf-8")
        provision(read_plan(file), self.kits)
        if self.superlink is None:
            self.start_superlink()
        done = self._in_kit("register.sh")
        if done.returncode != 0:
            raise DeploymentError(f"the SuperLink did not register all nodes: {(done.stdout + done.stderr).strip()}")
        for name, config in nodes.items():
            self.nodes[name] = Node(Path(str(config["data-dir"])), config)
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node, for the first time or again."""
        kit = self.kits / name
        self.nodes[name].process = self.start_program(name, str(kit / "start.sh"), [], kit)

    def start_superlink(self) -> None:
        """Start the SuperLink, for the first time or again with the same database."""
        kit = self.kits / SERVER
        self.superlink = self.start_program(SERVER, str(kit / "start.sh"), [], kit)
        if not flower_processes.wait_for_port(self.superlink, self.port, _START_SECONDS):
            raise DeploymentError(f"the SuperLink did not start:\n{self.log(SERVER)[-3000:]}")
        time.sleep(0.5)

    def start_program(
        self, name: str, program: str, arguments: Sequence[str], folder: Path
    ) -> "subprocess.Popen[bytes]":
        """Start a program in a folder; its output goes to the log of that name."""
        # A SuperLink's logs may hold what concerns the nodes alone.
        with open(self.logs / f"{name}.log", "ab", opener=partial(os.open, mode=0o600)) as log:
            settings = flower_processes.environment(folder / "flwr")
            process = flower_processes.start(program, arguments, folder, settings, log, 0o077)
        self._started.append(process)
        return process

    def log(self, name: str) -> str:
        """Return all that a process has said."""
        path = self.logs / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def flwr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Flower's command line against this SuperLink."""
        return self._in_kit("flwr.sh", *arguments)

    def is_healthy(self, name: str) -> bool:
        """Return whether a node, or the server, answers the health check of its kit."""
        return self._in_kit("health.sh", kit=name).returncode == 0

    def run(self, app: Path, run_config: dict[str, str]) -> str:
        """Submit a run and return its id."""
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        return str(self._answer("run", str(app), "--run-config", settings)["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """Return what Flower says of a run, such as "running" or "finished:completed", and the details."""
        (run,) = self._answer("ls", "--run-id", run_id)["runs"]
        return str(run["status"]), str(run.get("status-details", ""))

    def online(self) -> int:
        """Return how many nodes the SuperLink has heard from lately."""
        # One that has just started may not answer yet.
        with contextlib.suppress(FlowerRunError):
            return sum(node.get("status") == "online" for node in self._answer("supernode", "list")["nodes"])
        return 0

    def _answer(self, *arguments: str) -> dict[str, Any]:
        return answer_of(self.flwr(*arguments, "--format", "json"))

    def _in_kit(self, script: str, *arguments: str, kit: str = SERVER) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.kits / kit / script), *arguments],
            env=flower_processes.environment(self.root),
            encoding="utf-8",
            errors="replace",
            capture_output=True,
            check=False,
        )

    def _end_all(self) -> None:
        # Nodes first: a SuperLink that goes first leaves them retrying.
        # The stack ends them in reverse, each even where the end of another raises.
        with contextlib.ExitStack() as stack:
            for process in self._started:
                stack.callback(flower_processes.end, process)
