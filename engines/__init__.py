"""The engines that run an experiment: this process, worker processes, Flower's own processes."""
