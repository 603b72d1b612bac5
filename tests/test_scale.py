"""Very many clients: what is not kept and not made."""

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_strategy, build_task, message_settings
from florets.task import task as task_module


def test_beyond_a_number_of_clients_data_are_made_anew_and_no_data_for_an_introduction(monkeypatch):
    overrides = ["num_clients=8", "strategy=fedavg", "strategy.fraction_train=0.25", "num_rounds=2", "k=1"]
    config = compose([*overrides, "task.model_options.hidden=[4]", "eval_clients=participants", "loss_matrix=false"])

    def models(most: int) -> tuple[bytes, int]:
        """Run with `most` clients whose data are kept; return the models and how many clients' data are there."""
        monkeypatch.setattr(task_module, "MOST_KEPT", most)
        task = build_task(config)
        strategy = build_strategy(config, task)
        grid = LocalGrid(app, config.num_clients, None, None, _session().adopt)
        grid.share(task)
        strategy.start(grid, build_models(config, task), num_rounds=2, train_config=message_settings(config, task))
        record = strategy.context.models.record
        return b"".join(array.data for array in record.values()), len(task._clients)

    all_kept, few_kept = models(8), models(2)
    assert all_kept[0] == few_kept[0]
    assert (all_kept[1], few_kept[1]) == (8, 2)


def _session():
    from florets.client_app.session import session

    return session
