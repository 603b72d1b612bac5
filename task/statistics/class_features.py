"""Mean features of a client's classes, and how surely they are known."""

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float64]
Labels = NDArray[np.int64]


def class_means(features: Features, labels: Labels, num_classes: int) -> tuple[NDArray[np.float32], Labels]:
    """Return the mean feature of each class that is there, (P, D) in the order of classes, and all counts (C,)."""
    counts = np.bincount(labels, minlength=num_classes)
    means = [features[labels == label].mean(axis=0) for label in np.flatnonzero(counts)]
    return np.stack(means).astype(np.float32), counts


def shares_and_spread(features: Features, labels: Labels, num_classes: int) -> tuple[NDArray[np.float32], float]:
    """Return each class's mean feature times its share of the samples, (P, D), and the spread of their estimate.

    The spread is (mean |f|^2 - sum_c |h_c|^2) / n, with h_c the rows, and never below 0.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867), the statistics of the combination of classifiers.
    """
    counts = np.bincount(labels, minlength=num_classes)
    rows = np.stack([features[labels == label].sum(axis=0) / len(labels) for label in np.flatnonzero(counts)])
    spread = (np.mean(np.sum(features**2, axis=1)) - np.sum(rows**2)) / len(labels)
    return rows.astype(np.float32), max(float(spread), 0.0)
