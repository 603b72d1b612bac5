"""k-FED: one-shot federated k-means on the clients' data."""
