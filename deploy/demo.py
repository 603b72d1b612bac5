"""`make deploy-demo`: a federation on this machine, from `florets provision` to its results.

Six nodes hold data of their own, in several forms, and state their true cluster, so that the ARI is known. Each
process is started by its kit, as by systemd and compose. Two runs follow each other: CLoVE, which is told that there
are two groups, and a discovery, which is not. The last line says `ari=1.0`, the smaller one of the two; the exit code
is 0 only then.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from florets.deploy.credentials import make_node_key
from florets.deploy.federation import DeploymentError, Federation
from florets.deploy.provision import SERVER
from florets.engines import flower_processes
from florets.engines.flower_run import FlowerRunError, app_to_send
from florets.reports.folder import MARKER
from florets.reports.summary import RunSummary, read_lines
from florets.task.data.demo_data import write_folders

EXPERIMENT = "own_digits"
NUM_NODES = 6
RUNS = (("CLoVE, with k=2", "strategy=clove k=2", None), ("Discovery, k unknown", "strategy=discovery k=auto", 3))
"""Title, overrides and rounds of each run; None: as many as the command says."""

_ONLINE_SECONDS = 180.0
_REFUSAL_SECONDS = 120.0
_RUN_SECONDS = 15 * 60.0
# Each look at the run's state starts a Python process, which the nodes' work has to wait for.
_STATUS_SECONDS = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m florets.deploy.demo", description=__doc__)
    parser.add_argument("--results-dir", type=Path, default=Path("results"), help="folder of results")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of training of CLoVE; discovery has three")
    options = parser.parse_args(arguments)
    # On SIGTERM it stops what it started, as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with TemporaryDirectory(prefix="florets-deploy-", ignore_cleanup_errors=True) as folder:
            ari = demonstrate(Path(folder), options.results_dir.absolute(), options.rounds)
    except (DeploymentError, FlowerRunError) as error:
        print(f"deploy-demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("deploy-demo: interrupted; everything is stopped", file=sys.stderr)
        return 130
    print(f"ari={ari}")
    return 0 if ari == 1.0 else 1


def demonstrate(root: Path, results: Path, num_rounds: int) -> float | None:
    """Deploy, check who is refused, run, and return the smallest final ARI, None where one is not known.

    Like all steps below, it raises DeploymentError where a part does not do what it should.
    """
    say(f"Data: {NUM_NODES} folders, in several forms")
    clusters = write_folders(root / "data", NUM_NODES)
    with Federation(root / "federation") as federation:
        say("florets provision federation.yaml; SuperLink with TLS and node authentication; keys registered; nodes")
        federation.add(
            {
                name: {"data-dir": str(root / "data" / name), "true-cluster": cluster}
                for name, cluster in clusters.items()
            }
        )
        check_refusals(federation)
        wait_online(federation, len(clusters))
        found = [
            run_one(federation, title, f"{own} min_clients={NUM_NODES} num_rounds={rounds or num_rounds}", results)
            for title, own, rounds in RUNS
        ]
        say("Stopping the nodes and the SuperLink")
    return None if None in found else min(ari for ari in found if ari is not None)


def run_one(federation: Federation, title: str, overrides: str, results: Path) -> float | None:
    """Run once, print what it left, and return its final ARI."""
    say(f"{title}: ./flwr.sh run . --run-config \"experiment='{EXPERIMENT}' overrides='{overrides}' ...\"")
    started = time.monotonic()
    # Tests in the last round alone, each round being one exchange more with them.
    settings = {"experiment": EXPERIMENT, "overrides": f"{overrides} eval_every=1000", "results-dir": str(results)}
    app = app_to_send(federation.root / "app")
    folder = follow(federation, federation.run(app, settings), results)
    say(f"{title}: finished after {time.monotonic() - started:.0f} s")
    summary = RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))
    models = folder / "models.safetensors"
    if not models.is_file():
        raise DeploymentError(f"the run left no models in {folder}")
    if summary.discovery:
        say(f"Discovery: {summary.discovery}")
    say(f"Results on the server: {folder}")
    say(f"Models: {models} ({models.stat().st_size:,} bytes)")
    return summary.final_ari


def check_refusals(federation: Federation) -> None:
    """Start nodes that must not get in, and wait until each has been turned away."""
    empty = federation.root / "strangers"
    empty.mkdir()
    stranger = empty / "node.key"
    make_node_key(stranger)
    authority = ["--root-certificates", str(federation.kits / SERVER / "ca.crt")]
    unknown = [*authority, "--auth-supernode-private-key", str(stranger)]
    cases = {
        "unregistered": ("a node whose key is not registered", unknown),
        "keyless": ("a node without a key", authority),
        "plain": ("a node without TLS", ["--insecure", "--max-retries", "2"]),
    }
    intruders = {}
    for name, (_, options) in cases.items():
        arguments = [*options, "--superlink", federation.address, "--port", str(flower_processes.free_port())]
        intruders[name] = federation.start_program(name, "flower-supernode", arguments, empty)
    deadline = time.monotonic() + _REFUSAL_SECONDS
    for name, process in intruders.items():
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        if process.poll() in (None, 0) or "Failed to initialize the connection" not in federation.log(name):
            raise DeploymentError(f"{cases[name][0]} was not refused:\n{federation.log(name)[-2000:]}")
        say(f"Refused, as it should be: {cases[name][0]}")


def wait_online(federation: Federation, count: int) -> None:
    """Wait until all nodes have been heard of."""
    deadline = time.monotonic() + _ONLINE_SECONDS
    while (online := federation.online()) < count:
        if time.monotonic() > deadline:
            logs = "\n".join(f"{name}: {federation.log(name)[-500:]}" for name in federation.nodes)
            raise DeploymentError(f"only {online} of {count} nodes came online:\n{logs}")
        time.sleep(1)
    if sick := [name for name in (SERVER, *federation.nodes) if not federation.is_healthy(name)]:
        raise DeploymentError(f"{', '.join(sick)}: no answer to the health check")
    say(f"{count} nodes are online; they and the server answer their health checks")


def follow(federation: Federation, run_id: str, results: Path, since: float | None = None) -> Path:
    """Print each round of a run and return its results folder once Flower says that it completed.

    Folders older than `since` (None: now) are of earlier runs.
    """
    shown, asked, before = 0, time.monotonic(), time.time() if since is None else since
    deadline = asked + _RUN_SECONDS
    while True:
        folders = [path.parent for path in results.rglob(MARKER) if path.stat().st_mtime >= before - 1]
        due = time.monotonic() - asked > _STATUS_SECONDS or any(
            (folder / "report.html").is_file() for folder in folders
        )
        status, details = federation.status(run_id) if due else ("running", "")
        asked = time.monotonic() if due else asked
        for line in read_lines(folders[0])[shown:] if folders else []:
            shown += 1
            accuracy = "" if line["accuracy"] is None else f", accuracy {100 * line['accuracy']:.1f} %"
            ari = "unknown" if line["ari"] is None else f"{line['ari']:.2f}"
            say(f"Round {line['round']} ({line['phase']}): {line['participants']} nodes, ARI {ari}{accuracy}")
        if status == "finished:completed" and folders:
            return folders[0]
        if status.startswith("finished"):
            raise DeploymentError(f"the run ended as {status}: {details}\n{federation.log(SERVER)[-3000:]}")
        if time.monotonic() > deadline:
            raise DeploymentError(
                f"the run has not ended after {_RUN_SECONDS / 60:.0f} minutes:\n{federation.log(SERVER)[-3000:]}"
            )
        time.sleep(0.5)


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
