"""Strategies that find their own number of models, or mix models: faulty clients, and newcomers after the run."""

import csv
import itertools
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

STRATEGIES: dict[str, tuple[str, ...]] = {
    "pacfl": (),
    "stocfl": ("strategy.anchor_epochs=5",),
    "fedclust": (),
    "sr_fca": ("strategy.solo_steps=20", "strategy.refine_every=1"),
    "flux": ("strategy.cluster_round=1",),
    "feddrift": ("strategy.period=1",),
}
"""Each with the settings of its short run."""

FAULTED = {
    **STRATEGIES,
    "fedem": (),
    "fedrc": (),
    "fedsoft": (),
    "fedgwc": ("strategy.fraction_train=0.5", "strategy.rest_threshold=1000", "strategy.most_index=9"),
}
"""Held to faulty clients: also those whose clients mix all models."""

FAULTY = ("num_rounds=4", "num_clients=10", "k=2", "task.num_clusters=2", "task.model_options.hidden=[8]")


@pytest.mark.parametrize(
    ("fault", "strategy"),
    list(zip(itertools.cycle(["missing array", "huge weights (1e6)"]), FAULTED, strict=False)),
)
def test_faulty_clients_leave_the_run_sound(strategy: str, fault: str) -> None:
    outcome = play_faulty(strategy, fault, seed=0, more=(*FAULTY, *FAULTED[strategy]))
    assert outcome.sound, outcome
    assert outcome.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", FAULTED)
@pytest.mark.parametrize("fault", [*FAULTS, *OTHER_FAULTS, *GRID_FAULTS])
def test_no_fault_ends_a_run_or_corrupts_its_models(strategy: str, fault: str) -> None:
    outcome = play_faulty(strategy, fault, seed=1, more=(*FAULTY, *FAULTED[strategy]))
    assert outcome.sound, outcome


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_clients_that_come_after_the_run_are_given_its_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    given = [*SMALL, f"strategy={strategy}", "train.local_epochs=5", *STRATEGIES[strategy], "quiet=true"]
    folder = Path(run(compose([*given, f"results_dir={tmp_path}"]), given).folder)
    rows = csv.DictReader((folder / "clients.csv").read_text().splitlines())
    found = {row["client"]: row["found_cluster"] for row in rows}
    assert len(set(found.values())) > 1
    task = build_task(compose(given))
    for client in (0, 5):
        part = task.client(client)
        np.savez(tmp_path / f"{client}.npz", x=part.x_test.numpy(), y=part.y_test.numpy())
        capsys.readouterr()
        assert main(["assign", f"run={folder}", f"data={tmp_path / str(client)}.npz"]) == 0
        assert capsys.readouterr().out.startswith(f"Model {found[str(client)]} fits best")
