"""FedGWC: clusters are split by how the losses of sampled clients compare, round after round."""
