"""The wheel alone, in a fresh environment and among a stranger's modules; beside it the example package."""

import os
import subprocess
import sys
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_architecture import OURS

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_strategy"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FOLDERS = OURS
SMALL = ["num_clients=8", "k=2", "task.num_clusters=2", "task.model_options.hidden=[8]", "num_rounds=3"]

# Against a SuperLink of the environment's own.
FLWR_RUN = """
import sys
from florets.engines.flower_run import NAME, own_superlink

app, nodes, run_config = sys.argv[1:]
with own_superlink() as superlink:
    federation = f"num-supernodes={nodes} client-resources-num-cpus=1"
    superlink.flwr("run", app, NAME, "--stream", "--federation-config", federation, "--run-config", run_config)
    print(superlink.flwr("ls", NAME, "--format", "json", capture=True).stdout)
"""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel and the example package, and a folder of somebody else's to work in."""

    wheel: Path
    place: Path
    work: Path

    def __call__(self, program: str, *arguments: str) -> str:
        done = subprocess.run([str(self.place / "bin" / program), *arguments], **self.how, timeout=900, check=False)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    @property
    def how(self) -> dict[str, object]:
        settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        settings |= {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        return {"cwd": self.work, "env": settings, "text": True, "capture_output": True}

    def run(self, *overrides: str) -> Path:
        """Run an experiment, in a results folder of its own, and return the run's folder."""
        said = self("florets", *overrides, f"results_dir={self.work / f'run-{time.monotonic_ns()}'}")
        return Path(said.splitlines()[-1].removeprefix("Results: "))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    root = tmp_path_factory.mktemp("fresh")
    pip = ["-m", "pip", "--disable-pip-version-check"]
    subprocess.run([sys.executable, *pip, "wheel", "-q", "--no-deps", "-w", str(root), str(ROOT)], check=True)
    (wheel,) = root.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(root / "env")], check=True)
    fresh, wanted = str(root / "env" / "bin" / "python"), [f"{wheel}[sim,sweep]", str(EXAMPLE)]
    subprocess.run([fresh, *pip, "install", "-q", "-c", str(ROOT / "constraints.txt"), *wanted], check=True)
    work = root / "work"
    for name in ("task.py", "strategies.py", "conf/__init__.py", "server_app/__init__.py"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("raise SystemExit('a module of a stranger was imported')\n")
    (work / "conf" / "config.yaml").write_text("no: {such: file\n")
    return Environment(wheel, root / "env", work)


def test_the_wheel_holds_one_package_with_all_of_its_files(environment: Environment) -> None:
    names = set(zipfile.ZipFile(environment.wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"florets", f"florets-{VERSION}.dist-info"}
    files = [
        path
        for folder in FOLDERS
        for end in ("py", "yaml", "md")
        for path in (ROOT / folder).rglob(f"*.{end}")
        if (folder, end) != ("papers", "md")  # pages of results
    ]
    inside = {f"florets/{path.relative_to(ROOT).as_posix()}" for path in files}
    assert {name for name in names if name.startswith("florets/")} == {
        *inside,
        *("florets/__init__.py", "florets/__main__.py", "florets/pyproject.toml", "florets/py.typed"),
    }
    assert "florets/server_app/recorder.py" in inside


def test_the_command_in_a_folder_with_a_strangers_modules(environment: Environment) -> None:
    assert environment("florets", "--version") == f"florets {VERSION}\n"
    folder = environment.run(*SMALL)
    data = environment.work / "new.npz"
    make = f"import numpy as np; np.savez({str(data)!r}, x=np.zeros((3, 1, 8, 8)), y=np.arange(3))"
    environment("python", "-c", make)
    assert "fits best" in environment("florets", "assign", f"run={folder}", f"data={data}")
    environment("florets", "predict", f"run={folder}", f"data={data}", "model=0")
    assert (environment.work / "predictions.csv").is_file()


@pytest.mark.parametrize(
    "launcher", [[], ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]], ids=["here", "joblib"]
)
def test_a_sweep(environment: Environment, launcher: list[str]) -> None:
    said = environment("florets", "-m", *SMALL, "strategy=clove,mean_groups", *launcher)
    assert "| clove " in said
    assert "| mean_groups " in said


def test_flowers_simulation_gives_the_same_models(environment: Environment) -> None:
    """By the command, and by `flwr run` of the app that `florets app` writes: both run the installed package."""
    here = environment.run(*SMALL, "strategy=mean_groups", "batch_clients=off")
    flower = environment.run(*SMALL, "strategy=mean_groups", "engine=flwr")
    assert (flower / "models.safetensors").read_bytes() == (here / "models.safetensors").read_bytes()
    results = environment.work / "by-flwr-run"
    environment("florets", "app", "my-app")
    settings = f"results-dir='{results}' overrides='strategy=mean_groups {' '.join(SMALL)}'"
    said = environment("python", "-c", FLWR_RUN, str(environment.work / "my-app"), "8", settings)
    assert "finished:completed" in said, said
    (models,) = results.rglob("models.safetensors")
    assert models.parent.relative_to(results).parts[:2] == ("quickstart", "mean_groups")
    assert models.read_bytes() == (here / "models.safetensors").read_bytes()
