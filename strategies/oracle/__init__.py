"""The oracle: training with the true clusters, or from the true models."""
