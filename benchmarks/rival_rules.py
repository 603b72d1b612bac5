"""Known rules for the number of clusters, on the same rows as discovery: each client's mean over its folds.

Every rule takes rows (M, D), the largest number of clusters and a generator, and returns the number that it chooses.
All but the silhouette can answer 1.
"""

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from florets.strategies.core.cluster import canonical, cut, ward_tree, within_sums


def silhouette(rows: np.ndarray, k_max: int, rng: np.random.Generator) -> int:
    """Best mean silhouette of Ward's clusters (Rousseeuw 1987)."""
    tree, apart = ward_tree(rows), squareform(pdist(rows))
    scores = [
        silhouette_score(apart, canonical(cut(tree, k)), metric="precomputed")
        for k in range(2, min(k_max, len(rows) - 1) + 1)
    ]
    return 2 + int(np.argmax(scores))


def gap(rows: np.ndarray, k_max: int, rng: np.random.Generator, references: int = 20) -> int:
    """Gap statistic, references uniform in the box of the principal components (Tibshirani, Walther, Hastie 2001)."""
    centred = rows - rows.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    low, high = turned.min(axis=0), turned.max(axis=0)

    def logs(points: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(within_sums(ward_tree(points))[: k_max + 1], 1e-12))

    drawn = np.stack([logs(rng.uniform(low, high, size=turned.shape)) for _ in range(references)])
    values = drawn.mean(axis=0) - logs(turned)
    margin = drawn.std(axis=0) * np.sqrt(1 + 1 / references)
    for k in range(1, k_max):
        if values[k - 1] >= values[k] - margin[k]:
            return k
    return k_max


def prediction_strength(rows: np.ndarray, k_max: int, rng: np.random.Generator, splits: int = 10) -> int:
    """Largest number whose clusters of one half of the clients the other half predicts, bound 0.8 (2005)."""
    strength = np.ones((k_max, splits))
    for split in range(splits):
        order = rng.permutation(len(rows))
        test, train = rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]
        trees = ward_tree(test), ward_tree(train)
        for k in range(2, k_max + 1):
            if k > min(len(test), len(train)):
                strength[k - 1, split] = 0.0
                continue
            own, theirs = (canonical(cut(tree, k)) for tree in trees)
            centres = np.stack([train[theirs == group].mean(axis=0) for group in range(k)])
            predicted = cdist(test, centres).argmin(axis=1)
            together = predicted[:, None] == predicted
            shares = []
            for group in range(k):
                members = np.flatnonzero(own == group)
                if len(members) > 1:
                    inside = together[np.ix_(members, members)].sum() - len(members)
                    shares.append(inside / (len(members) * (len(members) - 1)))
            strength[k - 1, split] = min(shares, default=0.0)
    mean = strength.mean(axis=1) + strength.std(axis=1) / np.sqrt(splits)
    return 1 + int(np.flatnonzero(mean >= 0.8).max())


def gabriel(rows: np.ndarray, k_max: int, rng: np.random.Generator, row_folds: int = 5, column_folds: int = 2) -> int:
    """Gabriel cross-validation of k-means: clients and columns held out at once (Fu, Perry 2020)."""
    error = np.zeros(k_max)
    groups_of_rows = np.array_split(rng.permutation(len(rows)), row_folds)
    groups_of_columns = np.array_split(rng.permutation(rows.shape[1]), column_folds)
    for held_rows in groups_of_rows:
        train = np.setdiff1d(np.arange(len(rows)), held_rows)
        for held in groups_of_columns:
            seen = np.setdiff1d(np.arange(rows.shape[1]), held)
            for k in range(1, k_max + 1):
                if k > len(train):
                    error[k - 1] = np.inf
                    continue
                model = KMeans(k, n_init=5, random_state=int(rng.integers(2**31 - 1))).fit(rows[np.ix_(train, held)])
                # The clusters' centres in the columns that stayed classify the held-out clients.
                centres = np.stack([rows[np.ix_(train[model.labels_ == g], seen)].mean(axis=0) for g in range(k)])
                label = cdist(rows[np.ix_(held_rows, seen)], centres).argmin(axis=1)
                error[k - 1] += ((rows[np.ix_(held_rows, held)] - model.cluster_centers_[label]) ** 2).sum()
    return 1 + int(error.argmin())


RULES = {
    "silhouette": silhouette,
    "gap": gap,
    "prediction strength": prediction_strength,
    "Gabriel CV": gabriel,
}
