"""FedDrift: a model for each concept, for clients whose data change at different times."""
