"""FedAvg: federated averaging of one model."""
