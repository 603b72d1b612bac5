"""APFL: a client uses a mixture of the common model and of its own, which it learns along with the common one.

Source: Deng et al. 2020 (arXiv 2003.13461), Alg. 1; the adaptive weight is that of eq. (10), once a round.
Deviation: the server keeps the clients' models and weights and sends them, so that a client keeps nothing. Running
statistics are not moved by local training.
"""

from dataclasses import dataclass, field

import numpy as np

import florets


def mixture(own, common, alpha):
    """Return alpha v + (1 - alpha) w, which is v or w to the bit at its ends."""
    return own if alpha == 1 else common if alpha == 0 else alpha * own + (1 - alpha) * common


@florets.handler
def train(client):
    """On each batch take a step of the common model w, then one of v on the mixture's loss."""
    w, v, alpha = client.model(), client.model("own"), client.config["alpha"]
    rate, loss, slope = client.training.learning_rate, 0.0, 0.0
    if not client.training.is_gradient_descent:
        raise ValueError("APFL takes plain gradient steps: use train=sgd train.momentum=0")
    for step, (x, y) in enumerate(client.batches()):
        gradient, value = client.gradient(w, x, y)
        loss += (value - loss) / (step + 1)
        w = {name: w[name] - rate * gradient[name] for name in w}
        gradient, _ = client.gradient({name: mixture(v[name], w[name], alpha) for name in v}, x, y)
        if step == 0 and client.config["adaptive"]:
            slope = sum(float(((v[name] - w[name]) * gradient[name]).sum()) for name in v)
        v = {name: v[name] - rate * alpha * gradient[name] for name in v}
    return client.reply(w, train_loss=loss, own=v, alpha=float(np.clip(alpha - rate * slope, 0, 1)))


@dataclass
class Kept:
    """The clients' own models and their weights."""

    own: florets.PerClient = field(default_factory=florets.PerClient)
    alpha: dict[str, float] = field(default_factory=dict)


class Mixtures(florets.Method):
    """A client is sent the common model and its own, and tests the mixture; its own begins as the common one."""

    Kept = Kept
    handler = train
    returns = ("own",)
    numbers = ("alpha",)

    def sends(self, client, group):
        return {
            "own": self.kept.own.get(client, self.models[group]),
            "alpha": self.alpha(client),
            "adaptive": self.settings.adaptive,
        }

    def keep(self, updates):
        for client, update in updates:
            self.kept.own[client] = update.arrays["own"]
            self.kept.alpha[client] = min(max(update.numbers["alpha"], 0.0), 1.0)

    def uses(self, client, model):
        return mixture(self.kept.own.get(client, model), model, self.alpha(client))

    def alpha(self, client):
        """Return a client's weight of its own model."""
        return self.kept.alpha.get(client, self.settings.alpha)


@dataclass(frozen=True)
class APFLSettings(florets.OneModel):
    """Each client uses a mixture of the common model and of one of its own."""

    alpha: float = florets.setting(0.5, "weight of the client's own model; adaptive: at first", least=0, most=1)
    adaptive: bool = florets.setting(False, "learn the weight, once a round")


class APFL(florets.strategies.FedAvg):
    """One common model, and a model for each client that is mixed with it."""

    Settings = APFLSettings
    method = Mixtures
