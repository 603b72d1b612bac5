"""FedSoft: K centres, and for each client a model of its own that is held near them by importance weights."""
