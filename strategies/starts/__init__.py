"""First rounds of a run's choice: drawn at random, found by updates, and the best of several starts."""
