"""FedRep: clients share the representation, and each has a head of its own.

Source: Collins et al. 2021 (arXiv 2102.07078), Alg. 1: the head is trained first, then the representation under it.
Deviation: the server keeps the heads and sends them, so that a client keeps nothing; who has none yet starts from the
mean of the others'.
"""

from dataclasses import dataclass

import florets


@florets.handler
def train(client):
    """Train the head on the representation that came, then the representation under the new head."""
    head = tuple(client.config["head"])
    body = tuple(name for name in client.model() if name not in head)
    epochs = client.config["head_epochs"]
    first = client.train(objective=florets.Objective(frozen=body), local_epochs=epochs, local_steps=0, draws="head")
    return client.reply(client.train(first.model, objective=florets.Objective(frozen=head)))


class OwnHeads(florets.Method):
    """A client trains and tests the representation with its own head; the mean of the heads is for newcomers."""

    handler = train

    def start(self, client, model):
        if client not in self.kept:
            return model
        model = model.copy()
        model[self.head()] = self.kept[client]
        return model

    def sends(self, client, group):
        names = [entry.name for entry in self.layout.entries if self.head()[entry.place].any()]
        return {"head": names, "head_epochs": self.settings.head_epochs}

    def keep(self, updates):
        self.kept.update({client: update.vector[self.head()] for client, update in updates})

    def head(self):
        """Return the mask (R,) of the head's entries."""
        last = self.layout.entries[-1].name.rpartition(".")[0]
        return self.layout.mask(self.settings.head or [last])


@dataclass(frozen=True)
class FedRepSettings(florets.OneModel):
    """One representation for all clients, and a head for each."""

    head: list[str] = florets.setting([], "name prefixes of the head's layers; none: the last layer")
    head_epochs: float = florets.setting(10.0, "local epochs of the head, before the representation's", above=0)


class FedRep(florets.strategies.FedAvg):
    """One representation for all clients, and a head for each."""

    Settings = FedRepSettings
    method = OwnHeads
