"""`make smoke`: the main jobs by their real commands, with pictures, to their last line and their files.

Each job is an entry of `CHAINS`. It fails on an exit code, a traceback, a missing or empty file, a figure beyond its
bound. The jobs of a chain run in order, in one folder; two chains run at a time. Command lines of a
chain that is `in_one` share a process: to start one takes longer than most of these runs. Words on the command line
choose chains by the names of their jobs.
"""

import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from florets.conf.extras import PROJECT
from florets.engines import flower_processes
from florets.reports.summary import read_lines
from tests.flower_tools import build_fab_from_disk

RUN = (
    *("config.yaml", "rounds.jsonl", "clients.csv", "models.safetensors", "run.log", "summary.json", "report.html"),
    *("curves.png", "loss_matrix.png"),
)
"""Files that a run leaves."""
HUB_TAKES = r"LICENSE|.*\.(py|toml|md|yaml|json)"
"""Names of files that Flower Hub takes."""
ENVIRONMENT = {**flower_processes.environment(None), "RAY_ADDRESS": "local"}
for variable in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
    ENVIRONMENT.pop(variable, None)
OURS = {**ENVIRONMENT, "PYTHONPATH": str(PROJECT)}


class SmokeError(Exception):
    """A job went wrong; the text says how."""


@dataclass
class Place:
    """The folder of a chain, where its commands are run and their output is kept."""

    folder: Path
    shared: "subprocess.Popen[str] | None" = None
    """Carries out the lines of `florets`, if these share a process; see `serve`."""

    @property
    def log(self) -> Path:
        return self.folder / "smoke.log"

    def do(self, command: str, environment: Mapping[str, str] = OURS) -> str:
        start = self.log.stat().st_size if self.log.exists() else 0
        words = shlex.split(command)
        if self.shared is None or words[0] != "florets":
            with self.log.open("ab") as log:
                done = subprocess.run(words, cwd=self.folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
            code = str(done.returncode)
        else:
            print(json.dumps([str(self.folder), words[1:]]), file=self.shared.stdin, flush=True)
            code = self.shared.stdout.readline().strip()
        said = self.log.read_bytes()[start:].decode(errors="replace")
        if code != "0":
            raise SmokeError(f"exit code {code or self.shared.wait()}: {command}")
        if "Traceback (most recent call last)" in said:
            raise SmokeError(f"a traceback: {command}")
        return said


@dataclass(frozen=True)
class Job:
    """A command, and what it must leave.

    Attributes
    ----------
    command
        A command line, in which ``{run}`` is the folder of the chain's first run; or a function that returns what
        was printed.
    says
        A regular expression that the output holds.
    run
        Pattern, below the chain's folder, of a run's results: with the files of `RUN`, and figures within the bounds.
    least, most
        Bounds of figures in the run's ``summary.json``.
    files
        More patterns below the chain's folder. Each must match, and no match may be empty.
    """

    name: str
    command: str | Callable[[Place], str]
    says: str = ""
    run: str = ""
    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    files: Sequence[str] = ()

    def carry_out(self, place: Place) -> None:
        """Raise SmokeError if anything is not as it should be."""
        if callable(self.command):
            said = self.command(place)
        else:
            (run, *_) = *place.folder.rglob("summary.json"), place.folder
            said = place.do(self.command.replace("{run}", str(run.parent)))
        if not re.search(self.says, said):
            raise SmokeError(f"the output does not hold {self.says!r}")
        for pattern in (*self.files, *(f"{self.run}/{name}" for name in RUN if self.run)):
            found = list(place.folder.glob(pattern))
            if not found or not all(path.stat().st_size for path in found):
                raise SmokeError(f"{pattern} is missing or empty")
        if self.run:
            (folder,) = place.folder.glob(self.run)
            if "data:image/png" not in (folder / "report.html").read_text(encoding="utf-8"):
                raise SmokeError("the report has no pictures")
            figures = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            low = [f"{key}={figures[key]} < {bound}" for key, bound in self.least.items() if figures[key] < bound]
            high = [f"{key}={figures[key]} > {bound}" for key, bound in self.most.items() if figures[key] > bound]
            if low or high:
                raise SmokeError(", ".join(low + high))


@dataclass(frozen=True)
class Chain:
    """Jobs that are done one after the other."""

    jobs: Sequence[Job]
    in_one: bool = False


def run_of_a_hub_copy(place: Place) -> str:
    """Run the bundle as a copy from Flower Hub, by Flower's own command, in a Python that cannot import florets."""
    app, bare, home, empty = (place.folder / name for name in ("florets", "venv", "flwr", "empty"))
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(PROJECT))) as bundle:
        bundle.extractall(app, [name for name in bundle.namelist() if re.fullmatch(HUB_TAKES, name)])
    venv.create(bare)
    python = bare / "bin" / "python"
    # The packages, but not the .pth file among them that leads to this project.
    (site,) = bare.glob("lib/*/site-packages")
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    for entry in distribution("flwr").entry_points.select(group="console_scripts"):
        (bare / "bin" / entry.name).write_text(
            f"#!{python}\nfrom {entry.module} import {entry.attr}\n{entry.attr}()\n"
        )
        (bare / "bin" / entry.name).chmod(0o755)
    home.mkdir()
    empty.mkdir()
    port = flower_processes.free_port()
    (home / "config.toml").write_text(f'[superlink.own]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    own = {**ENVIRONMENT, "FLWR_HOME": str(home), "PATH": f"{bare / 'bin'}:{ENVIRONMENT['PATH']}"}
    missing = f'"{python}" -I -c "import florets.task" 2>&1 | grep "No module named .florets.task"'
    place.do(f"sh -c {shlex.quote(missing)}", own)
    with (place.folder / "superlink.log").open("wb") as log:
        arguments = ["--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
        program = str(bare / "bin" / "flower-superlink")
        superlink = flower_processes.start(program, arguments, empty, own, log)
        try:
            flower_processes.wait_for_port(superlink, port, 60, http=True)
            # On two processors one process does the clients' work, and none is started for a second.
            nodes = "num-supernodes=4 client-resources-num-cpus=2"
            keys = "overrides='num_clients=4 k=2 num_rounds=2 task.num_clusters=2' "
            keys += f"results-dir='{place.folder}/results'"
            flwr = bare / "bin" / "flwr"
            place.do(f'{flwr} run {app} own --stream --federation-config "{nodes}" --run-config "{keys}"', own)
            while '"status": "finished' not in (listed := place.do(f"{flwr} ls own --format json", own)):
                time.sleep(1)
        finally:
            flower_processes.end(superlink)
    return listed


def killed_and_resumed(place: Place) -> str:
    """Kill the quickstart (SIGKILL) in the middle, go on with it, and compare it with the one that was not killed."""
    folder = place.folder / "killed"
    with place.log.open("ab") as log:
        command = [sys.executable, "-m", "florets", f"results_dir={folder}"]
        process = subprocess.Popen(command, cwd=place.folder, env=OURS, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None and not list(folder.rglob("round-000003.safetensors")):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL or list(folder.rglob("summary.json")):
        raise SmokeError("the run ended before it could be killed")
    (rounds,) = folder.rglob("rounds.jsonl")
    said = place.do(f"florets resume={rounds.parent}")
    for name in ("models.safetensors", "clients.csv"):
        (resumed,), (whole,) = folder.rglob(name), (place.folder / "results").rglob(name)
        if resumed.read_bytes() != whole.read_bytes():
            raise SmokeError(f"{name} of the resumed run is not that of the whole one")
    # What the strategy remembers shows in when it freezes its groups, and in what it sends from then on.
    (resumed,), (whole,) = folder.rglob("rounds.jsonl"), (place.folder / "results").rglob("rounds.jsonl")
    for lines in zip(read_lines(resumed.parent), read_lines(whole.parent), strict=True):
        if len({(line["phase"], line["stable"], line["train_loss"]) for line in lines}) > 1:
            raise SmokeError(f"round {lines[0]['round']} of the resumed run is not that of the whole one")
    return said


IN_PYTHON = """
import numpy as np
import florets

run = florets.run(num_rounds=3)
assert run.ari == 1.0 and run.accuracy > 0.8, (run.ari, run.accuracy)
assert len(run.rounds) == 3 and len(run.clients) == 20 and len(run.models) == 4
rng = np.random.default_rng(0)
weights = rng.normal(size=(2, 8))
inputs = [rng.normal(size=(60, 8)) for _ in range(8)]
groups = florets.discover([(x, (x @ weights[number % 2] > 0).astype(int)) for number, x in enumerate(inputs)])
assert groups.labels.tolist() == [0, 1] * 4, groups.text
"""
SITES = "data_dir=../sites target=disease"
EQUAL = {"final_ari": 1.0}
END = r", ARI 1\.00.*\n(.*\n)?Results: /"
# The longest first.
CHAINS = [
    Chain(
        [
            Job(
                "flwr run, a copy from Flower Hub",
                run_of_a_hub_copy,
                says="finished:completed",
                run="results/quickstart/clove/*/seed-0",
                least={**EQUAL, "final_accuracy": 0.7},
            )
        ]
    ),
    Chain(
        [
            Job(
                "florets engine=flwr",
                "florets engine=flwr num_clients=4 k=2 task.num_clusters=2 num_rounds=2",
                says=END,
                run="results/quickstart/clove/*/seed-0",
                least={**EQUAL, "final_accuracy": 0.7},
            )
        ]
    ),
    Chain(
        [
            Job(
                "CLoVE on its paper's data",
                "florets experiment=clove/linear num_rounds=2",
                says=END,
                run="results/clove/linear/clove/*/seed-0",
                least=EQUAL,
                most={"final_model_error": 0.4},
            ),
            Job(
                "IFCA on its paper's data",
                "florets experiment=paper/ifca/synthetic task.data_options.d=100 num_rounds=10",
                says=END,
                run="results/paper/ifca/synthetic/ifca/*/seed-0",
                least=EQUAL,
                most={"final_model_error": 3.5},
            ),
            Job(
                "CFL-GP on its paper's data",
                "florets experiment=cfl_gp/linear num_rounds=25",
                says=END,
                run="results/cfl_gp/linear/cfl_gp/*/seed-0",
                least=EQUAL,
                most={"final_loss": 0.05},
            ),
            Job(
                "two-phase on its paper's data",
                "florets experiment=mixed_regression/a num_rounds=3 strategy.moment_rounds=2",
                says=END,
                run="results/mixed_regression/a/two_phase/*/seed-0",
                least=EQUAL,
                most={"final_model_error": 0.8},
            ),
            Job(
                "discovery",
                "florets strategy=discovery num_clients=12 num_rounds=3",
                says=END,
                run="results/quickstart/discovery/*/seed-0",
                least={**EQUAL, "final_num_clusters": 4, "final_accuracy": 0.7},
            ),
            Job(
                "a sweep of two",
                "florets -m seed=0,1 num_rounds=2",
                says=r"\nResults of the sweep: /",
                files=[
                    *(f"results/sweeps/*/{name}" for name in ("summary.csv", "summary.md", "curves.png")),
                    *(f"results/quickstart/clove/num_rounds-2/seed-{seed}/report.html" for seed in (0, 1)),
                ],
            ),
        ],
        in_one=True,
    ),
    Chain(
        [
            Job(
                "check",
                f"florets check {SITES}",
                says=r"0 errors, 0 warnings; /",
                files=["results/check/sites/check.json"],
            ),
            Job(
                "three sites",
                f"florets {SITES} strategy=clove k=2 num_rounds=5",
                says=r"\nGroups: 0: west; 1: north, south\nResults: /",
                run="results/own_data/clove/*/seed-0",
                least={"final_accuracy": 0.75},
            ),
            Job(
                "export",
                "florets export run={run} to=exported",
                says="Models: /",
                files=[f"exported/{name}" for name in ("README.md", "model_[01].pt2", "model_[01].safetensors")],
            ),
            Job(
                "advise",
                f"florets advise {SITES} num_rounds=2 train.learning_rate=0.3",
                says=r"\nUse: florets data_dir=\S+ target=disease .*\nPage: /",
                files=["results/own_data/advise/*/seed-0/advice.html"],
            ),
            Job(
                "predict",
                "python -m florets predict run={run} data=../sites/north/data.csv client=north",
                says=r"120 predictions of model 1: /",
                files=["predictions.csv"],
            ),
        ],
        in_one=True,
    ),
    Chain(
        [
            Job(
                "quickstart",
                "florets",
                says=r"accuracy 9[3-5]\.\d %, ARI 1\.00, stable from round \d+, 10 rounds in .*\nResults: /",
                run="results/quickstart/clove/seed-0",
                least={**EQUAL, "final_accuracy": 0.93},
            ),
            Job(
                "killed and resumed", killed_and_resumed, says=END, run="killed/quickstart/clove/seed-0", least=EQUAL
            ),
        ],
        in_one=True,
    ),
    Chain(
        [
            Job(
                "florets.run and florets.discover",
                f"python -c {shlex.quote(IN_PYTHON)}",
                run="results/quickstart/clove/*/seed-0",
                least=EQUAL,
            )
        ]
    ),
]


def write_sites(folder: Path) -> None:
    """Write three hospitals' tables: age raises the risk in two of them, and lowers it in the third."""
    rng = np.random.default_rng(0)
    for site, sign in (("north", 1), ("south", 1), ("west", -1)):
        age, dose = rng.normal(50, 10, 120), rng.normal(3, 1, 120)
        ill = np.where(sign * (age - 50) / 10 + dose - 3 > 0, "yes", "no")
        # The target is not the last column, which is what no target= would mean.
        rows = zip(age, dose, ill, rng.choice(["f", "m"], 120), strict=True)
        lines = ["age,dose,disease,sex", *(f"{a:.1f},{d:.2f},{y},{s}" for a, d, y, s in rows)]
        (folder / site).mkdir(parents=True)
        (folder / site / "data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def serve() -> None:
    """Carry out the arguments of `florets` that stand on each line of the input, and answer with the exit code."""
    from florets.commands.main import main as florets

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        folder, arguments = json.loads(line)
        os.chdir(folder)
        with open("smoke.log", "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = florets(arguments)
        sys.stdout.flush()
        print(code, file=answers, flush=True)


def work_through(chain: Chain, folder: Path) -> int:
    """Do the jobs of a chain, print a line for each, and return how many went wrong; the first ends the chain."""
    folder.mkdir()
    place = Place(folder)
    if chain.in_one:
        server = [sys.executable, "-m", "tests.smoke", "--serve"]
        errors = place.log.open("ab")
        place.shared = subprocess.Popen(
            server, cwd=PROJECT, env=OURS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    left = len(chain.jobs)
    for job in chain.jobs:
        began, problem = time.monotonic(), ""
        try:
            job.carry_out(place)
        except SmokeError as error:
            problem = str(error)
        print(f"{job.name:33} {time.monotonic() - began:6.1f} s  {problem or 'ok'}", flush=True)
        if problem:
            for log in sorted(folder.glob("*.log")):
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
                print(*(f"    {log.name}: {line}" for line in lines), sep="\n", flush=True)
            break
        left -= 1
    if place.shared is not None:
        place.shared.communicate()
        errors.close()
    return left


def main(words: Sequence[str]) -> int:
    """Do the chains whose jobs' names hold one of the words, or all of them; 1 if a job goes wrong."""
    chains = [chain for chain in CHAINS if not words or any(word in job.name for job in chain.jobs for word in words)]
    began, root = time.monotonic(), Path(tempfile.mkdtemp(prefix="smoke-"))
    write_sites(root / "sites")
    with ThreadPoolExecutor(2) as pool:
        failed = sum(pool.map(work_through, chains, [root / f"chain-{number}" for number in range(len(chains))]))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = f"{time.monotonic() - began:.0f} s; {used.ru_utime + used.ru_stime:.0f} s of a core"
    print(f"{sum(len(chain.jobs) for chain in chains) - failed} jobs ok, {failed} failed or not done ({spent})")
    if failed:
        print(f"Their files: {root}")
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        raise SystemExit(main(sys.argv[1:]))
