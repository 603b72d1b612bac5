"""FLUX: clients grouped once by what one trained model makes of their data."""
