"""FedClust: clients grouped once by the last layer of models that they trained alone."""
