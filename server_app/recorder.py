"""The results folder of one run, from the first line of its log to the report."""

from __future__ import annotations

import csv
import json
import logging
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.reports import folder as run_folder
from florets.reports.clients import CLIENTS, ClientRow, write_clients
from florets.reports.console import counted
from florets.reports.run_page import write_report
from florets.reports.scores import test_cells
from florets.reports.summary import UNMEASURED, Distances, RoundLine, RunSummary, round_line, round_seconds, summarise
from florets.server_app.client_rows import ClientRows, save_embedding
from florets.server_app.progress import Progress
from florets.strategies.base.report import ADVICE, Client, RoundReport
from florets.task.tested import Evaluation

log = logging.getLogger("florets")


def read_summary(folder: Path) -> RunSummary:
    """Return the summary that a run's folder holds."""
    return RunSummary.from_json((folder / "summary.json").read_text(encoding="utf-8"))


class Recorder(AbstractContextManager["Recorder"]):
    """Write what a run leaves behind, each round as soon as it is over.

    Leaving it closes log and progress bar. A killed run's ``rounds.jsonl`` has all whole rounds.
    An earlier run's folder is replaced whole, unless this one goes on in it after `done_rounds`; its `lock` may be
    held already. `earlier` was logged before there was a folder. ValueError if the folder holds something that no run
    has left there, or not the rounds that it should, or another process is at work in it.
    """

    def __init__(
        self,
        folder: Path,
        config_yaml: str,
        experiment: str,
        strategy: str,
        seed: int,
        num_rounds: int,
        quiet: bool = False,
        task_title: str = "",
        done_rounds: int | None = None,
        lock: run_folder.FolderLock | None = None,
        earlier: Sequence[logging.LogRecord] = (),
    ) -> None:
        self.folder = Path(folder).absolute()
        self._experiment, self._strategy, self._seed = experiment, strategy, seed
        self._task_title = task_title
        self.names: Mapping[int, str] = {}
        """Names of clients, by their numbers, where they are not their keys."""
        self.followers: list[Callable[[RoundLine], None]] = []
        """Called with each round's line."""
        self.summary: RunSummary | None = None
        """Known once the run is finished."""
        self._clients: dict[str, Client] = {}
        self._truth: dict[str, int] = {}
        self.lines: list[RoundLine] = []
        """Of all rounds so far."""
        self._warnings: list[str] = []
        self._lock = lock or run_folder.FolderLock(self.folder)
        try:
            if done_rounds is None:
                replaced = run_folder.open_folder(self.folder)
            else:
                replaced, self.lines = False, run_folder.reopen_folder(self.folder, done_rounds)
                self._warnings += [line["details"][ADVICE] for line in self.lines if ADVICE in line["details"]]
            run_folder.write_whole(self.folder / "config.yaml", config_yaml)
            self._rows = ClientRows(self.folder, done_rounds)
            self._open_log(earlier)
        except BaseException:
            self._lock.release()
            raise
        self._progress = Progress(f"{experiment} {strategy} seed {seed}", num_rounds, quiet, done=done_rounds or 0)
        for record in earlier:
            self._show_warning(record.getMessage())
        if done_rounds is not None:
            self.note(f"continuing after round {done_rounds} in {self.folder}")
        if replaced:
            self.note(f"replaced the results of an earlier run in {self.folder}")

    def _open_log(self, earlier: Sequence[logging.LogRecord]) -> None:
        with run_folder.naming(self.folder / "run.log"):
            self._handler: logging.FileHandler | None = run_folder.RunLog(self.folder / "run.log", encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        for record in earlier:
            self._handler.handle(record)
        log.addHandler(self._handler)
        # Without a level of its own the logger has the root's, WARNING: the file would hold next to nothing.
        self._level_before = log.level
        if log.getEffectiveLevel() > logging.INFO:
            log.setLevel(logging.INFO)

    def clients(self, clients: Sequence[Client]) -> None:
        """Note the clients of the federation with their true clusters: newcomers, and what changed of known ones."""
        if len(clients) == len(self._clients) and all(map(operator.is_, clients, self._clients.values())):
            return
        number, before = len(self._clients), self._truth
        self._clients = {client.key: client for client in clients}
        self._truth = {client.key: client.cluster for client in clients if client.cluster is not None}
        if len(clients) != number:
            log.info("%s, %d with a known true cluster", counted(len(clients), "client"), len(self._truth))
        elif moved := [key for key, cluster in self._truth.items() if before.get(key) != cluster]:
            log.info("%s to other groups: %s", counted(len(moved), "client"), ", ".join(sorted(moved)))

    def note(self, text: str) -> None:
        """Log a line of text and show it."""
        log.info("%s", text[:1].upper() + text[1:])
        self._progress.note(text)

    def warn(self, text: str) -> None:
        """Log a warning and show it; summary and report have it as well."""
        log.warning("%s", text)
        self._show_warning(text)

    def _show_warning(self, text: str) -> None:
        self._warnings.append(text)
        self._progress.note(f"warning: {text}")

    def round(
        self,
        report: RoundReport,
        distances: Distances = UNMEASURED,
        data_changed: int = 0,
        validation: float | None = None,
    ) -> RoundLine:
        """Append a round to ``rounds.jsonl`` and the files of its clients, show it, and return its line.

        The parameters are as in `round_line`.
        """
        line = round_line(report, self._truth, distances, self._clients, data_changed, validation)
        # Before the line, which says that the round is complete.
        self._rows.add(report, self._clients, self._truth)
        save_embedding(self.folder, report, self._truth)
        run_folder.append_lines(self.folder / run_folder.MARKER, json.dumps(line, allow_nan=False) + "\n")
        if line["diverged"]:
            log.warning(
                "Round %d: diverged (loss not finite) on %d of %d evaluated clients; "
                "a lower train.learning_rate may help",
                line["round"],
                line["diverged"],
                line["evaluated"],
            )
        self.lines.append(line)
        self._progress.show(line, round_seconds(line))
        for follow in self.followers:
            follow(line)
        return line

    def finish(
        self,
        models: Mapping[str, NDArray[Any]],
        evaluations: Mapping[str, Evaluation],
        assignment: Mapping[str, int],
        loss_matrix: tuple[Sequence[str], NDArray[np.float64]] | None = None,
        left_out: Sequence[str] = (),
        pictures: bool = True,
        mixtures: Mapping[str, NDArray[np.float64]] | None = None,
        best_round: int | None = None,
        stopped: bool = False,
    ) -> RunSummary:
        """Write all that is known only at the end: tables, models, summary, plots and report.

        `models` are the K models, ``<k>/<name>`` to values; `loss_matrix` are client keys and the mean loss of each
        model on each one's training data, (M, K); `mixtures` the shares of the models (K,) in clients that mix them.
        """
        self._progress.close()
        # The figures come first and the pictures last: a failure while drawing costs no results.
        clients = self._write_clients(evaluations, assignment, mixtures or {})
        if loss_matrix is not None:
            self._write_losses(*loss_matrix)
        pooled = self._write_tests(evaluations)
        self._write_confusions(evaluations, assignment)
        names = {"experiment": self._experiment, "strategy": self._strategy, "seed": str(self._seed)}
        with run_folder.whole_file(self.folder / "models.safetensors", "wb") as file:
            run_folder.write_arrays(file, models, names)
        summary = summarise(
            self.lines,
            experiment=self._experiment,
            strategy=self._strategy,
            seed=self._seed,
            folder=str(self.folder),
            evaluations=evaluations,
            left_out=left_out,
            warnings=self._warnings,
            best_round=best_round,
            stopped=stopped,
            pooled=pooled,
        )
        # Also where it came too late for the run to end earlier.
        (self.folder / run_folder.STOP).unlink(missing_ok=True)
        run_folder.write_whole(self.folder / "summary.json", summary.to_json())
        write_report(self.folder, summary, self.lines, clients, self._task_title, pictures)
        log.info("Results are in %s", self.folder)
        self.summary = summary
        return summary

    def _write_clients(
        self,
        evaluations: Mapping[str, Evaluation],
        assignment: Mapping[str, int],
        mixtures: Mapping[str, NDArray[np.float64]],
    ) -> list[ClientRow]:
        rows = [
            ClientRow(
                client=key,
                true_cluster=client.cluster,
                found_cluster=assignment.get(key),
                num_examples=client.num_examples,
                device=client.device,
                name=self.names.get(client.number),
                shares=mixtures[key].tolist() if key in mixtures else (),
                cells=test_cells(evaluations[key]) if key in evaluations else {},
            )
            for key, client in sorted(self._clients.items())
        ]
        write_clients(self.folder / CLIENTS, rows)
        return rows

    def _write_tests(self, evaluations: Mapping[str, Evaluation]) -> dict[str, float]:
        """Write the sums of the tests where clients sent any, and return figures over all records."""
        if all(evaluation.train is None for evaluation in evaluations.values()):
            return {}
        # Of runs with `statistics=true`; the others need none of it.
        from florets.reports.pooled import FILE, pooled_figures, statistics_of, to_json

        statistics = statistics_of(evaluations)
        run_folder.write_whole(self.folder / FILE, to_json(statistics))
        return pooled_figures(statistics)

    def _write_confusions(self, evaluations: Mapping[str, Evaluation], assignment: Mapping[str, int]) -> None:
        """Write the counts of each model's clients together, where clients sent any."""
        counts = Counter[tuple[int, int, int]]()
        for key, test in evaluations.items():
            if key in assignment and test.sums is not None:
                for label, predicted, count in test.sums.confusion.tolist():
                    counts[assignment[key], label, predicted] += count
        if counts:
            rows = [[*place, count] for place, count in sorted(counts.items())]
            self._write_table("confusion.csv", ["model", "label", "predicted", "samples"], rows)

    def _write_losses(self, keys: Sequence[str], losses: NDArray[np.float64]) -> None:
        head = ["client", "true_cluster", *map("model_{}".format, range(losses.shape[1]))]
        # repr of a Python float is the shortest text that reads back to the same bits.
        by_key = sorted(zip(keys, losses.tolist(), strict=True))
        self._write_table("loss_matrix.csv", head, [[key, self._truth.get(key), *row] for key, row in by_key])

    def _write_table(self, name: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        with run_folder.whole_file(self.folder / name) as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows])

    def close(self) -> None:
        """Close the log file and the progress bar, and let go of the folder; a second call does nothing."""
        self._progress.close()
        if self._handler is not None:
            log.removeHandler(self._handler)
            # Closing writes what is left over, if it can.
            with suppress(OSError):
                self._handler.close()
            self._handler = None
            log.setLevel(self._level_before)
        self._lock.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            is_signal = isinstance(error, KeyboardInterrupt | SystemExit)
            reason = "interrupted by a signal or `flwr stop`" if is_signal else str(error) or type(error).__name__
            log.error("The run ended early, after %s: %s", counted(len(self.lines), "round"), reason)
        self.close()
