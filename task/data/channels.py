"""Channel states of radio links: drawn, of five scenes of 3GPP's report 38.901, and COST2100, in and out of doors."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, FloatArray, IntArray, of_groups
from florets.task.data.files import PublicFiles
from florets.task.randomness import Purpose, generator
from florets.task.registry import check_ranges

SIDE, RAYS = 32, 20
"""Antennas, and taps of 50 ns each (20 MHz); rays of a cluster of paths."""
_TAP = 50e-9


class _Scene(NamedTuple):
    """A scene at 6 GHz, by TR 38.901, Table 7.5-6: means and deviations over links, and its clusters of paths."""

    delay: tuple[float, float]  # log10 of the delay spread in s
    spread: tuple[float, float]  # log10 of the spread of departure angles in degrees
    clusters: int
    ratio: float  # of delays to the delay spread
    within: float  # spread within a cluster in degrees
    sight: tuple[float, float] | None  # K factor in dB, where there is a line of sight


SCENES = {
    "street canyon, in sight": _Scene((-7.34, 0.38), (1.17, 0.41), 12, 3.0, 3.0, (9.0, 5.0)),
    "street canyon, out of sight": _Scene((-7.03, 0.42), (1.34, 0.42), 19, 2.1, 10.0, None),
    "urban, in sight": _Scene((-7.03, 0.66), (1.15, 0.28), 12, 2.5, 5.0, (9.0, 3.5)),
    "urban, out of sight": _Scene((-6.44, 0.39), (1.41, 0.28), 20, 2.3, 2.0, None),
    "office, out of sight": _Scene((-7.41, 0.14), (1.62, 0.25), 19, 3.0, 5.0, None),
}


def channels(
    data_dir: Path | None, seed: int, num_clusters: int, train_per_scene: int = 14_000, test_per_scene: int = 6_000
) -> Dataset:
    """Draw channel states (n, 2, 32, 32) of K scenes: real and imaginary parts over angles of departure and delays.

    A sample's group, and its label, is its scene, in the order of `SCENES`. Each state is a link drawn anew, scaled
    to a mean square of 1: the loss ``reconstruction`` is then the NMSE.

    Source: CFL-GP, App. F.6 (CD2): five distributions of 3GPP's model 38.901, 20,000 states each.
    Deviation: the paper draws them by QuaDRiGa and does not name the scenes. These follow the report's cluster
    delays, powers and angles (Sec. 7.5, steps 4 to 7) without elevation, the constants that scale delays and angles,
    and the second shift of a cluster's angle, for 32 antennas in a row and one at the other end. They have not been
    compared with QuaDRiGa's.
    """
    check_ranges(
        "data",
        ("train_per_scene", train_per_scene, train_per_scene >= 1, "at least 1"),
        ("test_per_scene", test_per_scene, test_per_scene >= 1, "at least 1"),
    )
    if num_clusters > len(SCENES):
        raise ValueError(f"task.num_clusters={num_clusters}: data channels has {len(SCENES)} scenes.")
    states, number = [], train_per_scene + test_per_scene
    for index, scene in enumerate([*SCENES.values()][:num_clusters]):
        rng = generator(seed, 0, Purpose.DATA, 1 + index)
        # A few at a time: all rays of 20,000 states are 10 GB.
        parts = [_drawn(scene, min(500, number - first), rng) for first in range(0, number, 500)]
        states.append(np.concatenate(parts))
    labels = np.broadcast_to(np.arange(num_clusters)[:, None], (num_clusters, number))
    return of_groups(np.stack(states), labels, train_per_scene, num_outputs=num_clusters)


def _drawn(scene: _Scene, number: int, rng: np.random.Generator) -> FloatArray:
    """Draw so many states (n, 2, 32, 32) of a scene."""
    shape = (number, scene.clusters)
    spread, angle_spread = (10 ** rng.normal(*log, size=(number, 1)) for log in (scene.delay, scene.spread))
    delays = np.sort(-scene.ratio * spread * np.log(1 - rng.random(shape)))
    delays -= delays[:, :1]
    powers = np.exp(-delays * (scene.ratio - 1) / (scene.ratio * spread)) * 10 ** (-0.3 * rng.standard_normal(shape))
    powers /= powers.sum(axis=1, keepdims=True)
    if scene.sight is not None:
        factor = 10 ** (rng.normal(*scene.sight, size=(number, 1)) / 10)
        powers /= 1 + factor
        powers[:, :1] += factor / (1 + factor)
    away = np.minimum(angle_spread, 104) * np.sqrt(-np.log(powers / powers.max(axis=1, keepdims=True))) * 2 / 1.4
    angles = rng.uniform(-60, 60, (number, 1)) + away * rng.choice([-1, 1], shape)
    offsets = rng.laplace(0, scene.within / np.sqrt(2), (*shape, RAYS))
    phases = np.exp(2j * np.pi * rng.random((*shape, RAYS)))
    if scene.sight is not None:
        # The path in sight is one ray.
        offsets[:, 0], phases[:, 0] = 0, phases[:, 0, :1] / np.sqrt(RAYS)
    sines = np.sin(np.deg2rad(angles[..., None] + offsets))
    return response(delays / _TAP, sines, phases * np.sqrt(powers / RAYS)[..., None])


def response(taps: NDArray[np.float64], sines: NDArray[np.float64], gains: NDArray[np.complex128]) -> FloatArray:
    """Return states (n, 2, 32, 32) of clusters' `taps` (n, c), and their rays' `sines` (n, c, rays) and `gains`."""
    antennas = np.exp(1j * np.pi * np.arange(SIDE) * sines[..., None].astype(np.float32)).astype(np.complex64)
    rows = np.fft.fft(np.einsum("ncr,ncra->nca", gains.astype(np.complex64), antennas), axis=2)
    states = np.einsum("nca,ncd->nad", rows, np.sinc(np.arange(SIDE) - taps[..., None]))
    both = np.stack([states.real, states.imag], axis=1)
    found: FloatArray = (both / np.sqrt(np.square(both).mean(axis=(1, 2, 3), keepdims=True))).astype(np.float32)
    return found


_MEASURED = ("in", "out")
_SHAPE = (2, 32, 32)
_FILES = PublicFiles(
    "cost2100",
    ("COST2100", "cost2100"),
    "DATA_Htrainin.mat, DATA_Htestin.mat, DATA_Htrainout.mat and DATA_Htestout.mat, each with HT (n, 2048)",
    "They are the public files of CsiNet (Wen, Shih, Jin), MATLAB's format of version 7 or before.",
)
_OFFSET = 0.5


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
        scenes = [_states(folder / f"DATA_H{part}{scene}.mat") for scene in _MEASURED]
        groups = np.repeat(np.arange(len(_MEASURED)), [len(x) for x in scenes])
        parts.append((np.concatenate(scenes), groups))
    (x_train, y_train), (x_test, y_test) = parts
    return Dataset(x_train, y_train, x_test, y_test, num_outputs=len(_MEASURED))


def _states(path: Path) -> FloatArray:
    (found,) = _FILES.read_mat(path, "HT")
    with _FILES.reading(path):
        if found.ndim != 2 or found.shape[1] != np.prod(_SHAPE) or not np.issubdtype(found.dtype, np.floating):
            raise ValueError(f"HT holds {found.dtype} of shape {found.shape}")
        states: FloatArray = found.astype(np.float32)
        if not np.isfinite(states).all():
            raise ValueError("HT holds numbers that are not finite")
        states -= np.float32(_OFFSET)
        power = np.sqrt(np.square(states, dtype=np.float64).mean(axis=1, keepdims=True))
        if not power.all():
            raise ValueError("a state is 0.5 everywhere, and so has no power")
        states = (states / power).astype(np.float32)
    return states.reshape(-1, *_SHAPE)
