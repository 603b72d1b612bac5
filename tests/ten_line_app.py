"""`CLoVE` in a ServerApp of ten lines: what an author of another Flower app would write."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import florets

app = ServerApp()
found: dict[str, int] = {}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train 5 models on 5 unknown groups of clients."""
    models, settings = florets.prepare("digits_label_skew", num_rounds=3)
    strategy = florets.strategies.CLoVE(k=5)
    strategy.start(grid, models, num_rounds=3, train_config=settings)
    found.update(strategy.assignment)
