"""Where an experiment runs: in this process, in worker processes, on a Ray cluster, in Flower's own processes."""
