"""FedALA: each client mixes the global model with its own upper layers before it trains."""
