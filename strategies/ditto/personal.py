"""Ditto's clients: a personal model for each, held near the model of its group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from flwr.app import RecordDict

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.models import Models
from florets.strategies.base.personal import PersonalMethod, of_groups
from florets.strategies.core import FloatArray
from florets.strategies.ditto.settings import DittoSettings
from florets.strategies.shared.messages import TRAIN_BILEVEL
from florets.strategies.shared.personal_models import PersonalModels
from florets.task.wire import kinds
from florets.task.wire.bilevel import BilevelUpdate, read_bilevel_update
from florets.task.wire.replies import TestResult, Update


@dataclass
class DittoKept:
    """The clients' models.

    Attributes
    ----------
    start
        The first models of the groups, from which every personal one starts.
    """

    personal: PersonalModels = field(default_factory=PersonalModels)
    start: Models | None = None


class DittoClients(PersonalMethod[DittoSettings, DittoKept]):
    """Each participant trains its group's model, and beside it its own, pulled towards the group's as it was sent."""

    Settings = DittoSettings
    Kept = DittoKept
    name = "ditto"

    def train(self, context: Round, groups: Mapping[str, int]) -> Plan[Update]:
        """Let every participant train both models."""
        kept, models = self.kept, context.models
        start = kept.start = kept.start or models
        settings = {**context.averaging.settings, kinds.GLOBAL_MU: self.settings.proximal_lambda}
        requests = []
        for client in context.participants:
            if client.key in groups:
                group = groups[client.key]
                # There may be more groups than first models, where the first round says how many there are.
                own = kept.personal.of(client.key, start, group if group < start.count else 0)
                shared = {kinds.GLOBAL: models.one(group)}
                requests.append(context.request_custom(TRAIN_BILEVEL, client, own.one(0), settings, shared))

        def read(key: str, content: RecordDict) -> Update:
            return read_bilevel_update(content, models.layout, groups[key])

        return Plan(requests, read, keep=self._keep)

    def _keep(self, updates: Sequence[tuple[str, Update]]) -> list[tuple[str, Update]]:
        """Keep the clients' models, and return those of the groups."""
        for key, update in updates:
            self.kept.personal[key] = update.vector
        return of_groups(updates, [cast(BilevelUpdate, update).shared for _, update in updates])

    def test(self, context: Round, groups: Mapping[str, int]) -> Plan[TestResult]:
        """Let every tester test its own model, or its group's where it has none yet."""
        return self.kept.personal.test(context, groups)

    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the clients' models."""
        return self.kept.personal.by_client()
