"""FeSEM: expectation-maximisation on the clients' models."""
