"""FedPAC: a shared body, and for each client a head combined from those of clients like it."""
