"""`CLoVE` in a ServerApp of ten lines: what an author of another Flower app would write."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from florets.conf.compose import compose
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.clove.strategy import CLoVE

app = ServerApp()
config = compose(["experiment=digits_label_skew"])
found: dict[str, int] = {}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train 5 models on 5 unknown groups of clients."""
    task = build_task(config)
    models: ArrayRecord = build_models(config, task)
    strategy = CLoVE(k=5)
    strategy.start(grid, models, num_rounds=3, train_config=message_settings(config, task))
    found.update(strategy.assignment)
