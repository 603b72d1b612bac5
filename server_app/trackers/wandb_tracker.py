"""The tracker of Weights & Biases: offline, within the results folder, unless WANDB_MODE says otherwise."""

import os
import secrets
from typing import TYPE_CHECKING, Any

from florets.reports.summary import RoundLine
from florets.server_app.trackers.figures import curves, final_figures, params, round_figures
from florets.server_app.trackers.protocol import ClientFigures, RunEnd, RunStart

if TYPE_CHECKING:
    import wandb

_NAME = "wandb"


class WandbTracker:
    """A run of W&B for each run, in the project ``florets``; a sweep's runs are one group."""

    def __init__(self) -> None:
        self._run: wandb.Run | None = None

    def on_start(self, run: RunStart) -> None:
        """Begin a run, or go on under the id of the one that was interrupted."""
        # Only what the user asks for is sent.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        run_id = (run.recall(_NAME) if run.done_rounds else None) or secrets.token_hex(8)
        # The user's own variables for these win; those that are not named here W&B reads itself.
        own: dict[str, Any] = {
            "mode": os.environ.get("WANDB_MODE", "offline"),
            "project": os.environ.get("WANDB_PROJECT", "florets"),
            "dir": os.environ.get("WANDB_DIR", str(run.results_dir)),
        }
        self._run = wandb.init(
            **own,
            id=run_id,
            resume="allow",
            reinit="create_new",
            name=run.name,
            group=None if run.sweep is None else run.sweep.name,
            config={**params(run.params), "folder": str(run.folder)},
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )
        run.remember(_NAME, run_id)
        # A run that goes on goes through rounds again; W&B's own steps never fall.
        self._run.define_metric("*", step_metric="round")

    def on_round(self, line: RoundLine, clients: ClientFigures) -> None:
        """Add a point to each curve."""
        assert self._run is not None
        self._run.log({**round_figures(line), **curves(clients)})

    def on_end(self, end: RunEnd) -> None:
        """Add the final figures, the pictures and the files, and end W&B's run."""
        if self._run is None:
            return
        import wandb

        try:
            if end.summary is not None:
                self._run.summary.update(final_figures(end.summary))
            pictures = [path for path in end.files if path.suffix == ".png"]
            if pictures:
                self._run.log({f"pictures/{path.stem}": wandb.Image(str(path)) for path in pictures})
            if end.files:
                results = wandb.Artifact(f"results-{self._run.id}", type="results")
                for path in end.files:
                    results.add_file(str(path))
                self._run.log_artifact(results)
        finally:
            self._run.finish(exit_code=0 if end.error is None else 1)
