"""CFL-GP: clustering by gradient profiles."""
