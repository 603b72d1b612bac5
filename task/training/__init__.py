"""Local training: losses, gradients, optimisers, objectives."""
