"""Settings of FedAvg."""

from dataclasses import dataclass

from florets.strategies.settings import OneModel


@dataclass(frozen=True)
class FedAvgSettings(OneModel):
    """One global model, the average of the clients' models."""
