"""A SuperLink with TLS and node keys, and its SuperNodes, as processes of this machine."""

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from florets.deploy.credentials import make_certificates, make_node_key
from florets.engines import flower_processes

HOST = "127.0.0.1"
CONNECTION = "demo"
"""Name of the connection in Flower's configuration."""

_START_SECONDS = 180.0
_NODE_SETTINGS = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
"""A node's executor looks for work once a second unless told otherwise, and every message passes there."""


class DeploymentError(RuntimeError):
    """A part of the deployment did not do what it should; the text says which, and ends with its log."""


@dataclass
class Node:
    """A SuperNode: where it reads its data, its node config, and the process while it runs."""

    data: Path
    settings: dict[str, str | int]
    process: "subprocess.Popen[bytes] | None" = None


class Federation:
    """Start a SuperLink on loopback, take SuperNodes, and end all of it with the block.

    `root` is an empty folder for certificates, keys, logs, and the folders in which the processes run.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nodes: dict[str, Node] = {}
        self.port = flower_processes.free_port()
        self._logs = root / "logs"
        self._home = root / "flwr"
        self._started: list[subprocess.Popen[bytes]] = []
        self.superlink: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Federation":
        for folder in (self._logs, self._home, self.root / "keys"):
            folder.mkdir(parents=True)
            folder.chmod(0o700)
        make_certificates(self.root, [HOST, "localhost"])
        # JSON texts are TOML texts.
        (self._home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"\n'
            f"root-certificates = {json.dumps(str(self.root / 'ca.crt'))}\n",
            encoding="utf-8",
        )
        try:
            self.start_superlink()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    def flwr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run Flower's command line against this SuperLink."""
        return subprocess.run(
            [flower_processes.command("flwr"), *arguments],
            env=flower_processes.environment(self._home),
            text=True,
            capture_output=True,
            check=False,
        )

    def register(self, name: str, data: Path, true_cluster: int) -> None:
        """Make a node's key, tell the SuperLink its public half, and write the node's config.

        Raises
        ------
        DeploymentError
            If the SuperLink does not take the key.
        """
        make_node_key(self._key(name))
        done = self.flwr("supernode", "register", f"{self._key(name)}.pub", CONNECTION, "--name", name)
        if done.returncode != 0:
            raise DeploymentError(f"the SuperLink did not register {name}: {(done.stdout + done.stderr).strip()}")
        self.nodes[name] = Node(data, {"data-dir": str(data), "true-cluster": true_cluster})

    def start(self, name: str) -> None:
        """Start a registered node, for the first time or again."""
        node = self.nodes[name]
        authority = ["--root-certificates", str(self.root / "ca.crt")]
        key = ["--auth-supernode-private-key", str(self._key(name))]
        node.process = self.start_supernode(name, [*authority, *key], node.settings)

    def start_supernode(
        self, name: str, credentials: list[str], settings: dict[str, str | int]
    ) -> "subprocess.Popen[bytes]":
        """Start a SuperNode with any credentials, in an empty folder and with a Flower home of its own."""
        config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
        arguments = [*credentials, "--superlink", self.address, "--port", str(flower_processes.free_port())]
        return self._start(name, "flower-supernode", [*arguments, "--node-config", config])

    def start_superlink(self) -> None:
        """Start the SuperLink, for the first time or again with the same address, certificates and database.

        Raises
        ------
        DeploymentError
            If it does not start.
        """
        arguments = ["--host", HOST, "--port", str(self.port), "--enable-supernode-auth"]
        for option, file in (("ca-certfile", "ca.crt"), ("certfile", "server.pem"), ("keyfile", "server.key")):
            arguments += [f"--ssl-{option}", str(self.root / file)]
        database = ["--database", str(self.root / "state.db")]
        self.superlink = self._start("superlink", "flower-superlink", [*arguments, *database])
        if not flower_processes.wait_for_port(self.superlink, self.port, _START_SECONDS):
            raise DeploymentError(f"the SuperLink did not start:\n{self.log('superlink')[-3000:]}")
        time.sleep(0.5)

    def log(self, name: str) -> str:
        """Return all that a process has said."""
        path = self._logs / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def run(self, app: Path, run_config: dict[str, str]) -> str:
        """Submit a run and return its id.

        Raises
        ------
        DeploymentError
            If Flower does not take it.
        """
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
        done = self.flwr("run", str(app), CONNECTION, "--run-config", settings, "--format", "json")
        answer = _json(done.stdout)
        if not answer.get("run-id"):
            raise DeploymentError(f"Flower rejected the run: {(done.stdout + done.stderr).strip()[-2000:]}")
        return str(answer["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """Return what Flower says of a run, such as "running" or "finished:completed", and the details.

        Raises
        ------
        DeploymentError
            If it says nothing of it.
        """
        done = self.flwr("ls", CONNECTION, "--run-id", run_id, "--format", "json")
        runs = _json(done.stdout).get("runs")
        if not runs:
            raise DeploymentError(f"`flwr ls` did not answer: {done.stdout}{done.stderr}")
        return str(runs[0]["status"]), str(runs[0].get("status-details", ""))

    def online(self) -> int:
        """Return how many nodes the SuperLink has heard from lately."""
        done = self.flwr("supernode", "list", CONNECTION, "--format", "json")
        return sum(node.get("status") == "online" for node in _json(done.stdout).get("nodes", []))

    def _start(self, name: str, program: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
        # An empty folder: Flower's tasks look for modules in the folder in which their parent was started.
        folder = self.root / "work" / name
        folder.mkdir(parents=True, exist_ok=True)
        home = self.root / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        # A SuperLink's database and logs may hold what concerns the nodes alone.
        with open(self._logs / f"{name}.log", "ab", opener=partial(os.open, mode=0o600)) as log:
            settings = _NODE_SETTINGS if program == "flower-supernode" else {}
            process = flower_processes.start(
                program, arguments, folder, {**flower_processes.environment(home), **settings}, log, 0o077
            )
        self._started.append(process)
        return process

    def _key(self, name: str) -> Path:
        return self.root / "keys" / name

    def _end_all(self) -> None:
        # Nodes first: a SuperLink that goes first leaves them retrying.
        # The stack ends them in reverse, each even where the end of another raises.
        with contextlib.ExitStack() as stack:
            for process in self._started:
                stack.callback(flower_processes.end, process)


def _json(text: str) -> dict[str, Any]:
    """Return the object that Flower's command printed, an empty one if there is none."""
    start = text.find("{")
    try:
        answer = json.loads(text[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}
