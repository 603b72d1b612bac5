"""`Checkpointing`: the moments at which a run's checkpoints are written."""

import logging
import operator
from typing import Any

from flwr.app import ArrayRecord

from florets.conf.consent import imported_functions
from florets.conf.saved import flower_resume_command, resume_command
from florets.conf.schema import Config, as_plain
from florets.server_app.resume.checkpoint import Best, Checkpoint, Checkpoints
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import Strategy

log = logging.getLogger("florets")


class Checkpointing:
    """Writes a checkpoint every `checkpoint_every` rounds, and of the last good round where a run ends in failure.

    Parameters
    ----------
    start
        The checkpoint that the run goes on from.
    by_flower
        The run was started with `flwr run`, and goes on by the same command.

    Attributes
    ----------
    best
        What a run with `patience` would end with; set it before `after`.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        config: Config,
        strategy: Strategy[Any, Any],
        start: Checkpoint | None,
        by_flower: bool = False,
    ) -> None:
        self._checkpoints = checkpoints
        self._every = config.checkpoint_every
        self._config = config
        self._strategy = strategy
        self._by_flower = by_flower
        self.best: Best | None = None if start is None else start.best
        self._last: tuple[int, ArrayRecord] | None = None
        self._saved = start.server_round if start is not None else 0
        # The clients when they were last looked at, and in the order of their keys.
        self._found: list[Client] = []
        self._clients: list[Client] = []
        checkpoints.drop_after(self._saved)

    def after(self, server_round: int, models: ArrayRecord) -> None:
        """Note a round that has come to its end; write its checkpoint where one is due."""
        self._last = (server_round, models)
        if self._every and server_round % self._every == 0:
            self._save(server_round, models)

    def last(self) -> str:
        """Write the checkpoint of the last good round, and return how the run can go on from it.

        This is told beside the failure that ended the run, so what goes wrong here is told as well and not raised.
        """
        if self._every and self._last is not None and self._last[0] != self._saved:
            # The round that failed has left no trace: the strategy's state is that of the last good one.
            try:
                self._save(*self._last)
            except OSError as error:
                log.warning("the checkpoint of round %d could not be written: %s", self._last[0], error)
        return self.how_to_go_on()

    def how_to_go_on(self) -> str:
        """Return how the run can go on from its last checkpoint."""
        if not self._every:
            return "The run has no checkpoint (checkpoint_every=0)"
        if not self._saved:
            return "No round was completed: once the cause is gone, run it again"
        find_command = flower_resume_command if self._by_flower else resume_command
        command = find_command(self._checkpoints.folder.parent, bool(imported_functions(self._config)))
        return f"Round {self._saved} is saved; once the cause is gone, go on with: {command}"

    def _save(self, server_round: int, models: ArrayRecord) -> None:
        strategy = self._strategy
        found = list(strategy.federation.clients.values())
        if len(found) != len(self._found) or not all(map(operator.is_, found, self._found)):
            self._found, self._clients = found, sorted(found, key=lambda client: client.key)
        config = as_plain(self._config)
        self._checkpoints.save(Checkpoint(server_round, models, strategy.state, self._clients, config, self.best))
        self._saved = server_round
