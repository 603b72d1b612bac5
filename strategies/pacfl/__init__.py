"""PACFL: clients grouped once by the principal angles between the subspaces of their data."""
