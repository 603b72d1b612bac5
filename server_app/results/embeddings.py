"""Recording of the vectors that rounds compared clients by: a part a round, joined at the end of the run."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

from florets.reports.embedding import EMBEDDINGS, UNKNOWN, Embedding, round_of
from florets.reports.folder import naming, whole_file
from florets.strategies.base.report import RoundReport

PARTS = "embeddings"
"""Folder of the parts; gone once they are joined."""


class Embeddings:
    """Write `embeddings.npz`, each round's part as soon as it is over.

    Parameters
    ----------
    folder
        The run's.
    done_rounds
        Rounds after which the run goes on: later ones are taken back. None: it starts, and the folder is empty.
    """

    def __init__(self, folder: Path, done_rounds: int | None = None) -> None:
        self._file, self._parts = folder / EMBEDDINGS, folder / PARTS
        if done_rounds is None:
            return
        for part in self._found():
            if int(part.stem) > done_rounds:
                part.unlink()
        if self._file.is_file():
            # A finished run that is resumed.
            self._join(lambda server_round: server_round <= done_rounds)

    def add(self, report: RoundReport, truth: Mapping[str, int]) -> None:
        """Write a round's part, where the round compared clients; `truth` has true clusters by client."""
        found = report.compared
        if found is None:
            return
        labels = [report.assignment.get(key, UNKNOWN) for key in found.clients]
        true = [truth.get(key, UNKNOWN) for key in found.clients]
        part = Embedding(
            report.server_round,
            found.kind,
            np.array(found.clients, dtype=np.str_),
            found.vectors,
            np.array(labels, dtype=np.int64),
            np.array(true, dtype=np.int64),
        )
        path = self._parts / f"{report.server_round}.npz"
        with naming(path):
            self._parts.mkdir(exist_ok=True)
        with whole_file(path, "wb") as file:
            np.savez(file, **part.arrays())

    def finish(self) -> None:
        """Join the parts into the file; a run that never compared clients has none."""
        if self._found():
            self._join(lambda _: True)
            # Only now: a run that is killed before has its parts, and joins them again.
            shutil.rmtree(self._parts)

    def _found(self) -> list[Path]:
        return sorted(self._parts.glob("*.npz"), key=lambda path: int(path.stem))

    def _join(self, wanted: Callable[[int], bool]) -> None:
        """Write the file anew from its own rounds, as far as wanted, and from the parts."""
        sources = [path for path in (self._file, *self._found()) if path.is_file()]
        with whole_file(self._file, "wb") as file, ZipFile(file, "w", ZIP_DEFLATED) as joined:
            written: set[str] = set()
            for source in sources:
                with ZipFile(source) as part:
                    for name in part.namelist():
                        if name not in written and wanted(round_of(name)):
                            written.add(name)
                            # Without the time in it, equal runs leave equal files.
                            member = ZipInfo(name)
                            member.compress_type = ZIP_DEFLATED
                            joined.writestr(member, part.read(name))
