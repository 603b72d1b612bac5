"""COST2100: channel states of a radio link, indoors and outdoors."""

from pathlib import Path

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, IntArray
from florets.task.data.files import PublicFiles
from florets.task.registry import register_data

SCENES = ("in", "out")
SHAPE = (2, 32, 32)
_FILES = PublicFiles(
    "cost2100",
    ("COST2100", "cost2100"),
    "DATA_Htrainin.mat, DATA_Htestin.mat, DATA_Htrainout.mat and DATA_Htestout.mat, each with HT (n, 2048)",
    "They are the public files of CsiNet (Wen, Shih, Jin), MATLAB's format of version 7 or before.",
)
_OFFSET = 0.5


@register_data("cost2100", files=True)
def cost2100(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load COST2100: 100,000 train and 20,000 test states (n, 2, 32, 32) of either scene, real and imaginary parts.

    A sample's group, and its label, is its scene: 0 indoors, 1 outdoors; the partition ``by_class`` gives each
    cluster one. The files lie in ``<data_dir>/COST2100``.

    Each state, which the files hold around 0.5, is moved to 0 and scaled to a mean square of 1: the loss
    ``reconstruction`` of a state is then its normalised squared error, and 10 log10 of the mean the NMSE in dB.

    Source: CFL-GP, App. F.6 (CD1), whose NMSE is a quotient of squared norms.
    Deviation: there models see states as they are, and are trained by their squared error and tested by the NMSE;
    here both are the NMSE.
    """
    folder = _FILES.folder(data_dir)
    parts: list[tuple[FloatArray, IntArray]] = []
    for part in ("train", "test"):
        scenes = [_read(folder / f"DATA_H{part}{scene}.mat") for scene in SCENES]
        groups = np.repeat(np.arange(len(SCENES)), [len(x) for x in scenes])
        parts.append((np.concatenate(scenes), groups))
    (x_train, y_train), (x_test, y_test) = parts
    return Dataset(x_train, y_train, x_test, y_test, num_outputs=len(SCENES))


def _read(path: Path) -> FloatArray:
    (found,) = _FILES.read_mat(path, "HT")
    with _FILES.reading(path):
        if found.ndim != 2 or found.shape[1] != np.prod(SHAPE) or not np.issubdtype(found.dtype, np.floating):
            raise ValueError(f"HT holds {found.dtype} of shape {found.shape}")
        states: FloatArray = found.astype(np.float32)
        if not np.isfinite(states).all():
            raise ValueError("HT holds numbers that are not finite")
        states -= np.float32(_OFFSET)
        power = np.sqrt(np.square(states, dtype=np.float64).mean(axis=1, keepdims=True))
        if not power.all():
            raise ValueError("a state is 0.5 everywhere, and so has no power")
        states = (states / power).astype(np.float32)
    return states.reshape(-1, *SHAPE)
