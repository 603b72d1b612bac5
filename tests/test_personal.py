"""Methods with a personal model for each client: faulty clients, newcomers after the run, and what a result means."""

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_faults import play as play_faulty
from florets.commands.main import main
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.server_app.build import build_task
from tests.faulty_app import FAULTS, GRID_FAULTS, OTHER_FAULTS
from tests.method_runs import SMALL

# All of them are runs of a method through the whole program.
pytestmark = pytest.mark.slow

STRATEGIES: dict[str, tuple[str, ...]] = {
    "ditto": (),
    "per_fedavg": (),
    "fedala": ("strategy.most_passes=20",),
    "fedproto": (),
    "fedpac": (),
}
"""Each with the settings of its short run."""

WITH_MODELS = ("ditto", "fedproto", "fedpac")
"""Those that end with a model for each client."""

FAULTY = ("num_rounds=3", "num_clients=10", "k=2", "task.num_clusters=2", "task.model_options.hidden=[8]")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fault", [*FAULTS, *OTHER_FAULTS, *GRID_FAULTS])
def test_no_fault_ends_a_run_or_corrupts_a_model_be_it_personal(strategy: str, fault: str) -> None:
    outcome = play_faulty(strategy, fault, seed=1, more=(*FAULTY, *STRATEGIES[strategy]))
    assert outcome.sound, outcome
    if fault in ("missing array", "huge weights (1e6)"):
        assert outcome.refused > 0
    if "beside the model" in fault:
        # Per-FedAvg's clients send a model alone.
        assert (outcome.refused > 0) == (strategy != "per_fedavg")


@pytest.mark.parametrize("strategy", WITH_MODELS)
def test_a_client_is_given_its_model_and_a_newcomer_the_one_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    given = [*SMALL, f"strategy={strategy}", "train.local_epochs=30", *STRATEGIES[strategy], "quiet=true"]
    folder = Path(run(compose([*given, f"results_dir={tmp_path}"]), given).folder)
    rows = list(csv.DictReader((folder / "clients.csv").read_text().splitlines()))
    numbers = {row["client"]: row["found_cluster"] for row in rows}
    assert len(set(numbers.values())) == 6
    part = build_task(compose(given)).client(5)
    np.savez(tmp_path / "5.npz", x=part.x_test.numpy(), y=part.y_test.numpy())
    capsys.readouterr()
    # Clients 3 to 5 hold the same two digits: the model of one of them fits best.
    assert main(["assign", f"run={folder}", f"data={tmp_path / '5.npz'}"]) == 0
    assert capsys.readouterr().out.split()[1] in {numbers[key] for key in ("3", "4", "5")}
    output = tmp_path / "predictions.csv"
    assert main(["predict", f"run={folder}", f"data={tmp_path / '5.npz'}", "client=5", f"output={output}"]) == 0
    found = [int(row["prediction"]) for row in csv.DictReader(output.read_text().splitlines())]
    (own,) = (float(row["test_accuracy"]) for row in rows if row["client"] == "5")
    assert np.mean(np.array(found) == part.y_test.numpy()) == pytest.approx(own)


def test_a_newcomer_to_per_fedavg_is_told_that_the_model_is_meant_to_be_adapted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*SMALL, "strategy=per_fedavg", "quiet=true"]
    folder = Path(run(compose([*given, f"results_dir={tmp_path}"]), given).folder)
    part = build_task(compose(given)).client(5)
    np.savez(tmp_path / "5.npz", x=part.x_test.numpy(), y=part.y_test.numpy())
    capsys.readouterr()
    assert main(["assign", f"run={folder}", f"data={tmp_path / '5.npz'}"]) == 0
    assert "adapts it by a gradient step on its own training data before it uses it" in capsys.readouterr().out
