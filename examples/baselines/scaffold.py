"""SCAFFOLD: control variates correct the drift of clients' local training, for all clients or within groups.

Source: Karimireddy et al. 2020 (arXiv 1910.06378), Alg. 1 with option II and a server step of 1.
Deviation: the clients' variates are kept by the server and sent, so that a client keeps nothing. Within groups a
client takes its variate along when it changes groups.
"""

from dataclasses import dataclass, field

import numpy as np

import florets


@florets.handler
def train(client):
    """Take steps y <- y - rate (g - c_i + c), and return c_i - c + (x - y) / (steps rate) as the new c_i."""
    x, c, own = client.model(), client.model("server"), client.model("own")
    if not client.training.is_gradient_descent:
        raise ValueError("SCAFFOLD corrects plain gradient steps: use train=sgd train.momentum=0")
    correction = {name: c[name] - own[name] for name, p in client.module.named_parameters() if p.requires_grad}
    trained = client.train(objective=florets.Objective(terms=(florets.LinearTerm(correction),)))
    y, whole = trained.model, trained.steps * client.training.learning_rate or 1.0
    return client.reply(trained, own={name: (x[name] - y[name]) / whole - correction[name] for name in correction})


@dataclass
class Variates:
    """The clients' variates by their keys, and the server's by group."""

    own: florets.PerClient = field(default_factory=florets.PerClient)
    server: dict[int, np.ndarray] = field(default_factory=dict)


class ControlVariates(florets.Method):
    """The server's variate of a group is the mean of its members'; who has none yet counts as zero."""

    Kept = Variates
    handler = train
    returns = ("own",)

    def sends(self, client, group):
        zero = np.zeros(self.layout.size)
        return {"server": self.kept.server.get(group, zero), "own": self.kept.own.get(client, zero)}

    def keep(self, updates):
        self.kept.own.update({client: update.arrays["own"] for client, update in updates})
        for group in {update.model for _, update in updates}:
            members = self.members(group)
            known = [self.kept.own[client] for client in members if client in self.kept.own]
            self.kept.server[group] = np.sum(known, axis=0) / len(members)


class Scaffold(florets.strategies.FedAvg):
    """One model for all clients."""

    method = ControlVariates


class ScaffoldInGroups(florets.strategies.CLoVE):
    """A model for each of the groups that CLoVE finds."""

    method = ControlVariates
