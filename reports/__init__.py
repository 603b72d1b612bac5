"""Results as data: frames, tables and figures of runs and sweeps."""
