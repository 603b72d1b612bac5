"""FedBN: batch normalisation stays each client's own, parameters and running statistics alike.

Source: Li et al. 2021 (arXiv 2102.07623), Alg. 1.
Deviation: the server keeps the clients' layers and sends them, so that a client keeps nothing; who has none yet
starts from the mean of the others'.
"""

import florets


class OwnNormalization(florets.Method):
    """A client trains and tests its group's model with its own layers of batch normalisation in it."""

    def start(self, client, model):
        if client not in self.kept:
            return model
        model = model.copy()
        model[self.own_entries()] = self.kept[client]
        return model

    def keep(self, updates):
        if self.own_entries().any():
            self.kept.update({client: update.vector[self.own_entries()] for client, update in updates})

    def own_entries(self):
        """Return the mask (R,) of the layers that have running statistics."""
        names = [entry.name for entry in self.layout.entries]
        return self.layout.mask([name.removesuffix(".running_mean") for name in names if "running_mean" in name])


class FedBN(florets.strategies.FedAvg):
    """One model for all clients, but for batch normalisation."""

    method = OwnNormalization


class FedBNInGroups(florets.strategies.CLoVE):
    """A model for each of the groups that CLoVE finds, but for batch normalisation."""

    method = OwnNormalization
