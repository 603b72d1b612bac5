"""The tracker of TensorBoard: event files in a folder for each run."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from florets.reports.summary import RoundLine
from florets.server_app.trackers.figures import curves, final_figures, params, round_figures
from florets.server_app.trackers.protocol import ClientFigures, RunEnd, RunStart

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

_NAME = "tensorboard"
_FINAL = ("final/accuracy", "final/loss", "final/ari")


class TensorBoardTracker:
    """Write to ``<results_dir>/tensorboard/<name of the run>``; the runs of a sweep lie in one folder of it.

    TensorBoard reads the folder while the run goes on. The configuration is in its tab HParams, the pictures are in
    Images. It holds no other files: Text names the folder with the report.
    """

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None
        self._run: RunStart | None = None
        self._last_round = 0

    def on_start(self, run: RunStart) -> None:
        """Open the run's folder; a new run replaces what an earlier one left there."""
        # It takes a second that runs without it need not spend.
        from torch.utils.tensorboard.writer import SummaryWriter

        place = run.recall(_NAME) if run.done_rounds else None
        folder = _folder(run) if place is None else Path(place)
        if not run.done_rounds:
            shutil.rmtree(folder, ignore_errors=True)
        # Events of rounds that the run goes through again are dropped by the reader.
        again = run.done_rounds + 1 if run.done_rounds else None
        self._writer = SummaryWriter(str(folder), purge_step=again, flush_secs=5)
        self._run, self._last_round = run, run.done_rounds
        run.remember(_NAME, str(folder))
        listed = "\n".join(f"| {name} | {value} |" for name, value in params(run.params).items())
        self._writer.add_text("configuration", f"| key | value |\n|---|---|\n{listed}", run.done_rounds)
        self._writer.add_text("folder", str(run.folder), run.done_rounds)
        self._write_params({})

    def on_round(self, line: RoundLine, clients: ClientFigures) -> None:
        """Add a point to each curve."""
        assert self._writer is not None
        self._last_round = line["round"]
        for name, value in {**round_figures(line), **curves(clients)}.items():
            self._writer.add_scalar(name, value, self._last_round)

    def on_end(self, end: RunEnd) -> None:
        """Add the pictures and the final figures, and close the files."""
        if self._writer is None:
            return
        if end.summary is not None:
            final = final_figures(end.summary)
            for name, value in final.items():
                self._writer.add_scalar(name, value, self._last_round)
            self._write_params({name: final[name] for name in _FINAL if name in final})
        for path in end.files:
            if path.suffix == ".png":
                self._add_picture(path)
        self._writer.close()

    def _add_picture(self, path: Path) -> None:
        import numpy as np
        from PIL import Image

        assert self._writer is not None
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image(path.stem, pixels, self._last_round, dataformats="HWC")

    def _write_params(self, final: dict[str, float]) -> None:
        """Write the configuration for the tab HParams, which wants the names of the final figures with it."""
        # `SummaryWriter.add_hparams` would make a second folder for each run.
        from torch.utils.tensorboard.summary import hparams

        assert self._writer is not None
        assert self._run is not None
        writer = self._writer._get_file_writer()  # type: ignore[no-untyped-call]
        for summary in hparams(params(self._run.params), final):  # type: ignore[no-untyped-call]
            writer.add_summary(summary)
        self._writer.flush()


def _folder(run: RunStart) -> Path:
    root = run.results_dir / _NAME
    return root / run.name if run.sweep is None else root / "sweeps" / run.sweep.name / run.name
