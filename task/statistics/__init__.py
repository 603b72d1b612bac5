"""Statistics of a client's data that some algorithms ask for: moments, centres, least squares."""
