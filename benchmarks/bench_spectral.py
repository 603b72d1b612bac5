"""CFL-GP's features from inner products against the SVD of the whole profile; CPU seconds on one thread.

Run: ``python benchmarks/bench_spectral.py`` (``--clients 32 128``). The profile is random, of the size of the rotated
MNIST experiment: 4 models of 159,010 parameters. Both ways are timed in turn and their ratio is the median over the
pairs; the Gram way includes the running mean and the inner products of the one block that a round refreshes.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from florets.strategies.cfl_gp.profile import GradientProfile
from florets.strategies.cfl_gp.spectral import spectral_features

MODELS, PARAMETERS = 4, 159_010


def dense_features(profile: GradientProfile, fresh: np.ndarray, refreshes: int) -> np.ndarray:
    """Return the features as one would write them down: the new mean, the whole matrix, its SVD."""
    blocks = [profile.blocks[index] for index in range(MODELS)]
    blocks[0] = blocks[0] + (fresh - blocks[0]) / (refreshes + 1)
    dense = np.concatenate([block.T for block in blocks]).astype(np.float64)
    u, _, _ = np.linalg.svd(dense, full_matrices=False)
    features: np.ndarray = dense.T @ u[:, :MODELS]
    return features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[32])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(f"{'clients':>8}{'SVD s':>10}{'Gram s':>10}{'ratio':>8}   largest difference, relative")
    for number in given.clients:
        rng = np.random.default_rng(0)
        everybody = np.arange(number)
        profile = GradientProfile.empty(MODELS, PARAMETERS)
        profile.add_clients(number)
        for index in range(MODELS):
            centres = np.repeat(rng.standard_normal((4, PARAMETERS), dtype=np.float32), -(-number // 4), axis=0)
            noise = rng.standard_normal((number, PARAMETERS), dtype=np.float32)
            profile.refresh(index, everybody, list(centres[:number] + noise))
        pairs, difference = [], 0.0
        for repeat in range(given.repeats):
            fresh = rng.standard_normal((number, PARAMETERS), dtype=np.float32)
            begin = time.process_time()
            plain = dense_features(profile, fresh, refreshes=repeat + 1)
            middle = time.process_time()
            profile.refresh(0, everybody, list(fresh))
            ours = spectral_features(profile.gram(everybody), MODELS)
            pairs.append((middle - begin, time.process_time() - middle))
            products = plain @ plain.T
            difference = max(difference, np.abs(ours @ ours.T - products).max() / np.abs(products).max())
        svd, gram = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{number:8}{svd:10.3f}{gram:10.3f}{ratio:8.1f}   {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
