"""FedProx: FedAvg with a proximal term."""
