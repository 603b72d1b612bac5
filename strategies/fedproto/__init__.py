"""FedProto: models of single clients that share mean features of the classes, and nothing else."""
