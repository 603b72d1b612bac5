"""Per-FedAvg: one model that is good after a gradient step on a client's data."""
