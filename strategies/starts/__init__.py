"""First assignments of a run (drawn at random, or found by updates), and restarts with other initial models."""
