"""`Stages`: when CFL-GP clusters, when it freezes its groups, and the models of newcomers."""

from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.base.report import State
from florets.strategies.base.round import Round
from florets.strategies.base.strategy import Strategy
from florets.strategies.cfl_gp.profile import ClientProfiles
from florets.strategies.cfl_gp.settings import CFLGPSettings, profile_entries
from florets.strategies.core import IntArray
from florets.strategies.shared.first_round import draw_models
from florets.task.randomness import Purpose
from florets.task.wire.leaving import GRADIENTS, MODELS


@dataclass
class CFLGPState(State):
    """What CFL-GP remembers.

    Attributes
    ----------
    profiles
        The clients' gradients on all models; None before the first clustering and after the last.
    entries
        Entries of a flat model that make the profile, (d_hat,).
    probes
        Clusterings so far: the models probe in turn.
    placed
        Clients that the last clustering placed.
    last_change
        The round in which a client last changed its group.
    unchanged_vectors
        Vectors received since then.
    """

    phase: str = "clustering"
    profiles: ClientProfiles | None = None
    entries: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    probes: int = 0
    placed: set[str] = field(default_factory=set)
    last_change: int = 0
    unchanged_vectors: int = 0


class Stages(Strategy[CFLGPSettings, CFLGPState]):
    """What surrounds the rounds that cluster."""

    leaving = (MODELS, GRADIENTS)
    Settings = CFLGPSettings
    State = CFLGPState

    def check(self, models: Models) -> None:
        """Refuse fewer models than clusters, and profile layers that the models do not have."""
        super().check(models)
        profile_entries(self.settings, self.seed, models.layout)

    def has_frozen(self, done: int) -> bool:
        """Return whether groups are frozen after this many rounds."""
        if self.state.phase == "stable":
            # For good: a run that goes on for more rounds has no profile left to cluster by.
            return True
        # Rounds without clustering prove nothing, and neither does one that hears the same few clients again: as many
        # vectors as there are clients must have changed nothing. With all replies that is one clustering.
        unproven = self.state.unchanged_vectors < max(len(self.state.placed), 1)
        if self.settings.stop_unchanged == 0 or self.last_round is None or unproven:
            return False
        # The small constant keeps products such as 0.07 * 100 from asking for one more by rounding.
        return done - self.state.last_change >= self.settings.stop_unchanged * self.last_round - 1e-9

    def start_newcomers(self, r: Round) -> dict[str, int]:
        """Give clients that are seen for the first time an initial group; return the participants' models."""
        new = [client for client in r.online if client.key not in self.assignment]
        used = sorted(set(self.assignment.values())) or list(range(r.models.count))
        drawn = draw_models(new, len(used), r.random(Purpose.FIRST_ROUND))
        self.assignment.update({key: used[place] for key, place in drawn.items()})
        return {client.key: self.assignment[client.key] for client in r.participants}

    def place_newcomers(self, r: Round) -> dict[str, int]:
        """Give participants that were never clustered the model with the lowest loss.

        Deviation: the paper has no newcomers. An initial group says nothing about where a client belongs.
        """
        used = sorted({self.assignment[key] for key in self.state.placed}) or list(range(r.models.count))
        found = r.ask_lowest(r.newcomers(self.state.placed), used)
        self.assignment.update(found)
        self.state.placed |= found.keys()
        # A client whose losses were lost sits this round out.
        placed = [client.key for client in r.participants if client.key in self.state.placed]
        return {key: self.assignment[key] for key in placed}
