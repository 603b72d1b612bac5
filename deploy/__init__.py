"""A whole deployment on one machine: certificates, keys, SuperLink, SuperNodes; docs/deployment.md is its guide."""
