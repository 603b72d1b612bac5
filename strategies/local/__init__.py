"""Local-only: every client trains alone."""
