"""`Memory`: a strategy's attributes are what it remembers, for checkpoints and for rounds that are repeated."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar


class Memory:
    """All attributes but those named in `transient` are saved in checkpoints and taken back when a round is repeated.

    A subclass names there what it can build anew, and nothing else needs to be said: an attribute that a checkpoint
    cannot hold (see `florets.strategies.base.state.encode`) is refused at the first checkpoint, by its name.
    """

    transient: ClassVar[tuple[str, ...]] = ()
    """Attributes that are no memory: settings, and what lives within a round."""

    def state(self) -> dict[str, Any]:
        """Return all that is remembered, by attribute: `florets.strategies.base.state.encode` takes it."""
        return {name: value for name, value in vars(self).items() if name not in self.transient}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned, here or in an earlier process.

        Raises
        ------
        ValueError
            If it is another class's.
        """
        own = self.state().keys()
        if state.keys() != own:
            raise ValueError(
                f"a state of {sorted(state)} is not one of {type(self).__name__}, which has {sorted(own)}"
            )
        vars(self).update(state)

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of `state` that the next round does not change; models are shared, as they never change."""
        return copy.deepcopy(self.state())
