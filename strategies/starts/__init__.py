"""How a run begins: groups drawn at random or found by updates, and restarts with other initial models."""
