"""FedEM: every client's data are a mixture of K distributions, each with a model that all clients train."""
