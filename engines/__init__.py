"""The engines that run an experiment: this process, worker processes, a Ray cluster, Flower's own processes."""
