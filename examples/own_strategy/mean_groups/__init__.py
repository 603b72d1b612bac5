"""`MeanGroups`: clients whose data have similar means share a model. A strategy of florets in its own package."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from flwr.app import RecordDict
from torch.nn.functional import one_hot

import florets


@florets.handler
def mean(client: florets.Client) -> RecordDict:
    """Return the mean input of the training set, or how often each class occurs in it."""
    rows = client.data.x_train
    if client.config["compare"] == "labels":
        rows = one_hot(client.data.y_train, client.num_outputs)
    return client.reply(mean=rows.flatten(1).to(torch.float32).mean(0))


@dataclass(frozen=True)
class MeanGroupsSettings(florets.ManyModels):
    """Clients send the mean of their inputs or labels, k-means groups these once, then FedAvg in each group."""

    compare: Literal["inputs", "labels"] = florets.setting(
        "inputs", "what is averaged: the inputs, or the classes' frequencies"
    )


@dataclass
class Means(florets.State):
    """What is remembered: every client's mean, by its key."""

    means: dict[str, np.ndarray] = field(default_factory=dict)


class MeanGroups(florets.Strategy[MeanGroupsSettings, Means]):
    """Group clients by the means of their data, then average the models of each group.

    A mean tells something of the data, as k-FED's centres do.
    """

    Settings = MeanGroupsSettings
    State = Means
    client_handlers = (mean,)

    def round(self, r: florets.Round) -> florets.Steps:
        """Ask new clients for their means and place them; then every participant trains its group's model."""
        new = [client for client in r.online if client.key not in self.state.means]
        compare = self.settings.compare
        length = math.prod(self.input_shape) if compare == "inputs" else self.num_outputs
        # Names, shapes and values of what comes back are checked: nothing that a client sends is trusted.
        known = dict(self.assignment)
        answers = r.query(mean, new, returns={"mean": (length,)}, settings={"compare": compare}, needed=not known)
        means = {key: answer.arrays["mean"] for key, answer in answers.items()}
        if not known:
            # Imported on the server only: a node that loads this file for its handler needs no scikit-learn.
            from sklearn.cluster import KMeans

            seed = int(r.random("groups").integers(2**31))
            kmeans = KMeans(r.models.count, n_init=10, random_state=seed)
            groups = kmeans.fit_predict(np.stack(list(means.values())))
            self.assignment.update(zip(means, map(int, groups), strict=True))
        else:
            for one, mine in means.items():
                nearest = min(known, key=lambda other: float(np.linalg.norm(self.state.means[other] - mine)))
                self.assignment[one] = known[nearest]
        self.state.means.update(means)
        updates = yield r.train(self.assignment)
        return r.average(updates)
