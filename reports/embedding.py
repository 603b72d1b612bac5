"""Vectors by which a round compared its clients: a file for each such round in a run's folder."""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from florets.conf.problems import ConfigError
from florets.strategies.base.report import named

if TYPE_CHECKING:
    from florets.reports.figures import Picture

EMBEDDINGS = "embeddings"
"""Folder of the files, `<round>.npz`."""
UNKNOWN = -1
"""Label of a client without a model, and true label of one whose cluster is not known."""

_FIELDS = ("kind", "clients", "vectors", "labels", "true_labels")


@dataclass(frozen=True)
class Embedding:
    """What one round compared its clients by."""

    round: int
    """From 1."""
    kind: str
    """What the vectors are: "losses", "updates", "features", ..."""
    clients: npt.NDArray[np.str_]
    """Keys (M,)."""
    vectors: npt.NDArray[np.float32]
    """(M, d); d is at most 64, longer vectors were projected at random."""
    labels: npt.NDArray[np.int64]
    """Model of each client after the round (M,); -1 where it has none."""
    true_labels: npt.NDArray[np.int64]
    """True cluster of each client (M,); -1 where it is not known."""

    def plot(self) -> "Picture":
        """Draw the clients in the plane: colour and name of their group, and the true cluster as marker if known.

        The axes are the two directions in which the vectors differ most.
        """
        places, axis_labels = self.placed()
        from florets.reports.figures import QUIET, draw_points, name_marks, name_points, new_picture, styled, tidy

        has_truth = bool((self.true_labels >= 0).any())
        truth = self.true_labels if has_truth else self.labels
        with styled():
            picture = new_picture(6.4, 4.6)
            axes = picture.subplots()
            draw_points(axes, places, self.labels, truth)
            for label in np.unique(self.labels[self.labels >= 0]):
                # A name can be read where colours cannot.
                name_points(axes, places[self.labels == label], f"group {label}")
            axes.margins(0.12)
            tidy(axes, "both")
            axes.set_xlabel(axis_labels[0])
            axes.set_ylabel(axis_labels[1])
            axes.set_title(f"Round {self.round}: {self.kind} of {len(self.clients)} clients")
            if has_truth:
                name_marks(picture, truth.tolist(), QUIET, title="true cluster", loc="outside right upper")
        return picture

    def placed(self) -> tuple[npt.NDArray[np.float64], tuple[str, str]]:
        """Return where the clients lie in the plane (M, 2), and the names of the axes."""
        places, fractions = principal_components(self.vectors.astype(np.float64), 2)
        first, second = (f"{fraction:.0%} of variance" for fraction in fractions)
        return places, (f"first component ({first})", f"second component ({second})")


def principal_components(
    vectors: npt.NDArray[np.float64], count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the first components of vectors (M, d) as (M, count), and their fractions of the variance (count,).

    The entry of largest size of each is positive; where vectors differ in fewer directions, the others are 0.
    """
    left, values, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    # Directions in which vectors differ by rounding alone are none.
    values = np.where(values > 1e-12 * max(1.0, float(np.abs(vectors).max())), values, 0.0)
    fractions = np.square(values) / max(float(np.square(values).sum()), 1e-300)
    places, missing = (left * values)[:, :count], max(count - len(values), 0)
    largest = np.take_along_axis(places, np.abs(places).argmax(axis=0)[np.newaxis], axis=0)
    places = places * np.where(largest < 0, -1.0, 1.0)
    return np.pad(places, ((0, 0), (0, missing))), np.pad(fractions[:count], (0, missing))


def rounds_of(folder: Path) -> dict[int, Path]:
    """Return the files of a run by their rounds, in order."""
    return dict(
        sorted((int(path.stem), path) for path in (folder / EMBEDDINGS).glob("*.npz") if path.stem.isdecimal())
    )


def embedding(folder: Path, round: int | None = None) -> Embedding:
    """Return what a round of a run compared its clients by; None: the last one that compared them."""
    files = rounds_of(folder)
    if not files:
        raise ConfigError([f"{folder}: holds no {EMBEDDINGS}; the strategy compared no clients."])
    wanted = max(files) if round is None else round
    if wanted not in files:
        rounds = named([str(one) for one in files])
        raise ConfigError([f"round={wanted}: no clients were compared in this round; the run has {rounds}."])
    try:
        with files[wanted].open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            kind, *others = (file[name] for name in _FIELDS)
            return Embedding(wanted, str(kind), *others)
    # NumPy and zipfile raise many kinds of error for a damaged archive.
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error):
        raise ConfigError([f"{files[wanted]}: is damaged; run the experiment again."]) from None
