"""IFCA: iterative federated clustering by the clients' own choice."""
