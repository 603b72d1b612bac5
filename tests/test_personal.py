"""Methods with a personal model for each client: faulty clients, newcomers after the run, and what a result means."""

import csv
from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.engines.engine import run
from florets.server_app.build import build_task
from florets.strategies.shared.messages import TRAIN_BILEVEL
from tests.method_runs import SMALL, Played, play


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ditto", "fedproto"])
def test_a_client_is_given_its_model_and_a_newcomer_the_one_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    given = [*SMALL, f"strategy={strategy}", "train.local_epochs=30", "quiet=true"]
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("personal=slope", r"personal=slope: .*Did you mean slopes\?"),
        ("personal=slopes averaging=gradients", r"averaging=gradients: clients of personal=slopes send models"),
        ("experiment=digits_autoencoder personal=intercept", r"not for task.loss=reconstruction; use personal=none"),
        ("strategy=oracle strategy.mode=true_start personal=slopes", r"personal=slopes: needs known groups"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(given.split())


DITTO = "strategy=ditto"


def personal(found: Played) -> list[np.ndarray]:
    """Return the bank of the clients' models, and of the global one before them."""
    return list(found.strategy.final_models(found.models).bank)


@pytest.mark.slow
def test_without_lambda_it_is_local_only_beside_fedavg_to_the_bit() -> None:
    more = ("num_rounds=3", "strategy.fraction_train=0.3", "train=sgd")
    found = play(DITTO, "strategy.proximal_lambda=0", *more)
    fedavg, local = (play(f"strategy={name}", *more) for name in ("fedavg", "local"))
    entries = len(fedavg.final)
    assert found.final[:entries] == fedavg.final
    trained = {key for report in found.reports for key in report.participants}
    numbers = found.strategy.assignment
    for key, number in local.strategy.assignment.items():
        own = found.final[entries * numbers[key] : entries * (numbers[key] + 1)]
        # A client that never took part stands with the global model.
        alone = local.final[entries * number : entries * (number + 1)]
        assert own == (alone if key in trained else fedavg.final)


@pytest.mark.slow
def test_a_step_of_the_personal_model_is_that_of_the_loss_and_of_the_distance_to_the_global_one() -> None:
    sgd = ("train=sgd", "train.local_steps=1", "train.batch_size=1000", "train.learning_rate=0.1")
    before, after = play(DITTO, *sgd, "num_rounds=1"), play(DITTO, *sgd, "num_rounds=2")
    free = play(DITTO, *sgd, "num_rounds=2", "strategy.proximal_lambda=0")
    # Of round 1 both are the same: the personal models start where the global one does.
    shared, *own = personal(before)
    for mine, tied, plain in zip(own, personal(after)[1:], personal(free)[1:], strict=True):
        assert np.allclose(tied, plain - 0.1 * 1.0 * (mine - shared), atol=1e-6)
        assert not np.allclose(tied, plain, atol=1e-4)


@pytest.mark.slow
def test_a_client_whose_reply_was_lost_keeps_its_model() -> None:
    found = play(DITTO, "num_rounds=2", lost={(TRAIN_BILEVEL, 2, 3)})
    earlier = play(DITTO, "num_rounds=1")
    own, before = found.strategy.state.personal.data, earlier.strategy.state.personal.data
    assert [key for key in own if np.array_equal(own[key], before[key])] == ["3"]
