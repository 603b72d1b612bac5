"""FedRC: a mixture of K models in which each sample counts against how common its class is in a model's part."""
