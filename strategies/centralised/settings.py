"""Settings of centralised training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from florets.strategies.settings import Experiment, OneModel


@dataclass(frozen=True)
class CentralisedSettings(OneModel):
    """One model trained on all clients' data together, which only a simulation has: a reference."""

    follows: ClassVar[Mapping[str, Sequence[str]]] = {"averaging": ("models",)}

    def problems(self, run: Experiment) -> list[str]:
        """Refuse nodes with data of their own."""
        if run.task.partition != "own":
            return []
        return [
            "strategy=centralised: it trains on all clients' data together, and these nodes (task.partition=own) "
            "keep theirs; use strategy=fedavg."
        ]
