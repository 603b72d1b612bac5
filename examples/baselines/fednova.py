"""FedNova: clients' changes are averaged per local step, so that who takes more steps does not pull harder.

Source: Wang et al. 2020 (arXiv 2007.07481), eq. (5) and (6), with tau_eff = sum p_i ||a_i||_1; ||a_i||_1 of SGD with
momentum rho is that of section 4, (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho).
"""

import numpy as np

import florets


@florets.handler
def train(client):
    """Train as the run has it, and return ||a||_1, the weight of the local gradients in the change."""
    if client.training.optimizer != "sgd":
        raise ValueError("FedNova counts gradient steps: use train=sgd")
    trained, rho = client.train(), client.training.momentum
    return client.reply(trained, tau=(trained.steps - rho * (1 - rho**trained.steps) / (1 - rho)) / (1 - rho))


class NormalizedAveraging(florets.Method):
    """The next model is x + tau_eff sum p_i (y_i - x) / tau_i."""

    handler = train
    numbers = ("tau",)

    def average(self, model, updates):
        p = np.array([update.num_examples for update in updates], dtype=float)
        p /= p.sum()
        tau = np.maximum([update.numbers["tau"] for update in updates], 1.0)
        change = sum(
            weight / steps * (update.vector - model) for weight, steps, update in zip(p, tau, updates, strict=True)
        )
        return model + (p @ tau) * change


class FedNova(florets.strategies.FedAvg):
    """One model for all clients."""

    method = NormalizedAveraging


class FedNovaInGroups(florets.strategies.CLoVE):
    """A model for each of the groups that CLoVE finds."""

    method = NormalizedAveraging
