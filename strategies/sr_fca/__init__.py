"""SR-FCA: clusters by how well clients' models do on each other's data, refined while they train."""
