"""`florets advise`: whether clients should be grouped, what to use, and why, from runs on one budget."""
