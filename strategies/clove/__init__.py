"""CLoVE: clustering of loss vector embeddings."""
