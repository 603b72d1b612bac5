"""CFL-S: recursive bipartition of the clients by the cosine similarity of their updates."""
