"""Strategies that find or mix models: with one model, with one for each, faulty clients, and newcomers."""

import csv
import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.server_app.build import build_task
from tests.faulty_runs import ALL_FAULTS
from tests.faulty_runs import play as play_faulty
from tests.method_runs import SMALL, Played, play

STRATEGIES: dict[str, tuple[str, ...]] = {
    "pacfl": (),
    "stocfl": (),
    "fedclust": (),
    "sr_fca": (),
    "flux": ("strategy.eps_scale=2",),
    "feddrift": ("strategy.period=1",),
}
"""Each with the settings of its short run."""

FAULTED = {**STRATEGIES, "fedem": (), "fedrc": (), "fedsoft": (), "fedgwc": ("strategy.fraction_train=0.5",)}
"""Held to faulty clients: also those whose clients mix all models."""

PERSONAL: dict[str, tuple[str, ...]] = {
    "ditto": (),
    "per_fedavg": (),
    "fedala": (),
    "fedproto": (),
    "fedpac": (),
    "clove personal=intercept": (),
    "clove personal=slopes": (),
}
"""Those with a model for each client, alone and within groups."""

ONE_MODEL = (
    "clove k=1 first_round=evaluate",
    "ifca k=1",
    "cfl_s k=1",
    "fesem k=1 strategy.weighting=examples",
    "fedgwc",
    "fedrc k=1",
    "flux strategy.eps_scale=1e9",
    "pacfl strategy.threshold=1e9",
    "fedclust strategy.threshold=1e9",
)
"""Settings that leave one model."""


@cache
def plain(strategy: str) -> Played:
    return play(f"strategy={strategy}", "strategy.fraction_train=0.5")


@pytest.mark.parametrize("given", ONE_MODEL)
def test_with_one_model_it_is_fedavg_to_the_bit(given: str) -> None:
    assert play(*f"strategy={given}".split(), "strategy.fraction_train=0.5").final == plain("fedavg").final


@pytest.mark.parametrize("strategy", ["pacfl", "fedclust"])
def test_with_a_model_for_each_it_is_local_only_to_the_bit(strategy: str) -> None:
    cut = ("strategy.threshold=0", "strategy.fraction_train=0.5")
    assert play(f"strategy={strategy}", *cut).final == plain("local").final


GROUPS = ("k=2", "task.num_clusters=2", "task.model_options.hidden=[8]")
FAULTY = ("num_rounds=4", "num_clients=10", *GROUPS)


@pytest.mark.parametrize(
    ("fault", "strategy"), list(zip(itertools.cycle(["NaN weights", "huge weights (1e6)"]), FAULTED, strict=False))
)
def test_faulty_clients_leave_the_run_sound(strategy: str, fault: str) -> None:
    outcome = play_faulty(strategy, [fault], seed=0, more=(*FAULTY, *FAULTED[strategy]))
    assert outcome.sound, outcome
    assert outcome.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize("given", [*FAULTED, *PERSONAL])
def test_no_fault_ends_a_run_or_corrupts_its_models(given: str) -> None:
    """In every round each fault has a client that commits it, and as many clients are honest."""
    strategy, *personal = given.split()
    own = FAULTED.get(given, ()) + PERSONAL.get(given, ())
    many = (f"num_clients={2 * len(ALL_FAULTS)}", "num_rounds=3", *GROUPS)
    outcome = play_faulty(strategy, ALL_FAULTS, seed=1, share=0.5, more=(*many, *personal, *own))
    assert outcome.sound, outcome
    assert outcome.rounds == 3
    # What is no more than odd, such as "shares or sums of 0" where nobody sends any, may count.
    assert outcome.refused > len(ALL_FAULTS)


@pytest.mark.parametrize(
    "strategy", ["pacfl", *(pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES if name != "pacfl")]
)
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
