"""CLoVE's training message names the model where the client's process has kept it: fewer bytes, the same results."""

from pathlib import Path

from flwr.app import Message
from safetensors.numpy import load_file

from florets.client_app.app import app
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.experiment import run_experiment
from florets.server_app.recorder import read_summary
from florets.task.wire import kinds
from tests.test_end_to_end import lines

SMALL = ("num_clients=8", "k=2", "task.num_clusters=2", "num_rounds=6", "eval_every=6", "quiet=true")
MODEL_BYTES = 4 * (64 * 64 + 64 + 64 * 10 + 10)


class SeveralProcesses(LocalGrid):
    """Nodes that say nothing of their process, as Flower's own do."""

    def _deliver(self, message: Message) -> Message:
        self._contexts[message.metadata.dst_node_id].node_config[kinds.ONE_PROCESS] = False
        return super()._deliver(message)


class Forgetful(LocalGrid):
    """One client's process is started anew between the two exchanges of round 3."""

    def _deliver(self, message: Message) -> Message:
        before = session._kept
        config = message.content.config_records[kinds.CONFIG]
        if message.metadata.dst_node_id == 3 and config.get(kinds.SERVER_ROUND) == 3 and kinds.MODEL_INDEX in config:
            session._kept = None
        reply = super()._deliver(message)
        session._kept = before if message.metadata.message_type == kinds.TRAIN else session._kept
        return reply


def test_a_clustering_round_downloads_k_models_where_they_are_kept_and_ends_equal_where_not(tmp_path: Path) -> None:
    grids = {"kept": LocalGrid(app, 8), "sent": SeveralProcesses(app, 8)}
    for name, grid in grids.items():
        run_experiment(grid, compose(list(SMALL)), tmp_path / name)
    kept, sent = (lines(read_summary(tmp_path / name)) for name in grids)
    models = [load_file(tmp_path / name / "models.safetensors") for name in grids]
    assert all(models[0][key].tobytes() == models[1][key].tobytes() for key in models[0])
    assert [line["phase"] for line in kept] == [line["phase"] for line in sent]
    for one, other in zip(kept, sent, strict=True):
        # A random first round has one exchange, and so has a stable one.
        twice = one["phase"] == "clustering" and one["round"] != 1
        downloads = [int(line["bytes_down"] / 8 / MODEL_BYTES) for line in (one, other)]  # type: ignore[call-overload]
        assert downloads == ([2, 3] if twice else [1, 1])


def test_a_process_that_is_started_anew_costs_its_client_the_round_and_nothing_else(tmp_path: Path) -> None:
    run_experiment(Forgetful(app, 8), compose(list(SMALL)), tmp_path / "run")
    replies = [line["replies"] for line in lines(read_summary(tmp_path / "run"))]
    assert [counts["error"] for counts in replies] == [0, 0, 1, 0, 0, 0]  # type: ignore[index]
    assert "no longer has the models of this round" in (tmp_path / "run" / "run.log").read_text()
