"""One-shot clustering of the clients' own model estimates."""
