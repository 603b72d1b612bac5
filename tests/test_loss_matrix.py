"""The loss matrix at the end of a run: announced, limited in time, and left out where it is not wanted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from florets.conf.compose import compose
from florets.engines.engine import run
from florets.server_app.final_models import loss_matrix
from florets.strategies.base.models import Models
from florets.strategies.fedavg.strategy import FedAvg
from florets.task.wire import kinds
from tests.fakes import FakeClients, models

COUNT = 40


class Clock:
    """Time that passes only while a client works."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.now, self._seconds = 0.0, seconds

    def work(self, client: int) -> Callable[[RecordDict], RecordDict]:
        def fault(content: RecordDict) -> RecordDict:
            self.now += self._seconds(client)
            return content

        return fault


def finished(clients: FakeClients) -> FedAvg:
    strategy = FedAvg()
    strategy.start(clients.grid(), models(0.0), num_rounds=1)
    return strategy


def ask(
    monkeypatch: pytest.MonkeyPatch, seconds: Callable[[int], float]
) -> tuple[list[int], np.ndarray | None, list[str]]:
    """Return who was asked, the losses, and what was said, where a client works for so many seconds."""
    clock = Clock(seconds)
    monkeypatch.setattr("florets.server_app.final_models.time.monotonic", lambda: clock.now)
    clients = FakeClients(
        [float(i) for i in range(COUNT)],
        keys=[f"{i:02d}" for i in range(COUNT)],
        faults={(kinds.LOSSES, 1, i): clock.work(i) for i in range(COUNT)},
    )
    strategy, said = finished(clients), []
    found = loss_matrix(strategy, Models(models(0.0, 1.0)), True, said.append)
    if found is not None:
        assert found[0] == clients.keys
    return clients.asked(kinds.LOSSES), None if found is None else found[1], said


def test_every_client_is_asked_once_and_the_line_before_says_how_much_it_is(monkeypatch) -> None:
    asked, losses, said = ask(monkeypatch, lambda _: 1.0)
    assert asked == list(range(COUNT))
    np.testing.assert_array_equal(losses, [[i**2, (1 - i) ** 2] for i in range(COUNT)])
    (line,) = said
    assert line.startswith(f"loss matrix: {COUNT} clients x 2 models, ")
    assert line.endswith(" to send")


def test_one_that_takes_too_long_is_given_up_and_says_which_key_decides(monkeypatch) -> None:
    asked, losses, said = ask(monkeypatch, lambda _: 5.0)
    assert losses is None
    assert asked == list(range(32))
    assert said[1] == "no loss matrix: it takes longer than 60 s; loss_matrix=false leaves it out"


@pytest.mark.parametrize(
    ("settings", "line"), [(["loss_matrix=false"], None), ([], "Loss matrix: 4 clients x 2 models")]
)
def test_the_switch_reaches_a_run(tmp_path: Path, settings: list[str], line: str | None) -> None:
    small = ["num_clients=4", "k=2", "task.num_clusters=2", "num_rounds=1", "strategy=ifca", "quiet=true"]
    given = [*small, f"results_dir={tmp_path}", *settings]
    folder = Path(run(compose(given), given).folder)
    # What is computed is the same: no other folder.
    assert "loss_matrix" not in str(folder.relative_to(tmp_path))
    assert (folder / "loss_matrix.csv").exists() == (not settings)
    assert (folder / "report.html").exists()
    log = (folder / "run.log").read_text()
    assert line in log if line else "oss matrix" not in log
