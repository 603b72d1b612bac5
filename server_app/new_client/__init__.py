"""Using a finished run's models for clients that were not in it."""
