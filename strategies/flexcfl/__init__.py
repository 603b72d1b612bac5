"""FlexCFL: clustering by the direction of each client's first updates."""
