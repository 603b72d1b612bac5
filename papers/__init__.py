"""`florets reproduce`: a grid of runs as one table and one plot, stopped and continued at any time."""
