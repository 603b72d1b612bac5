"""Studies that run several runs to answer one question: sweeps, tuning, advice, checks of the data."""
