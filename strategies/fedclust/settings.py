"""Settings of FedClust."""

# ruff: noqa: RUF009 - `key` is dataclasses.field with a help text, safe as a default

from dataclasses import dataclass
from typing import Literal

from florets.strategies.shared.tree_settings import TreeSettings
from florets.task.keys import setting


@dataclass(frozen=True)
class FedClustSettings(TreeSettings):
    """Clients train alone once and send the last layer; the server groups them by it, then FedAvg in each group."""

    layers: list[str] = setting([], "name prefixes of the layers that are sent and compared; none: the last one")
    estimate_epochs: int | None = setting(
        None, "passes over the client's data before they are sent; null: the local training of a round", least=1
    )
    linkage: Literal["average", "weighted", "single", "complete"] = setting("average", "distance of merged clusters")
