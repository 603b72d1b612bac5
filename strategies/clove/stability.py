"""CLoVE's memory of its clients' assignments, and when it freezes the clusters."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(eq=False)
class Histories(Mapping[str, list[int]]):
    """The last assignments of each client, one for each round in which it was given a model.

    In the paper each client keeps its own. Deviation: the server keeps them and sends each client its own with the
    model to train, so that a client that restarts loses nothing; the declaration of stability stays the client's, and
    comes with its update.

    Attributes
    ----------
    entries
        By client.
    silent
        By client: rounds running in which it took part and returned no valid update.
    """

    entries: dict[str, list[int]] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)

    def __deepcopy__(self, _: object) -> "Histories":
        # A client's list is replaced, never changed: a copy of the state, made before each round, shares them.
        return Histories(dict(self.entries), dict(self.silent))

    def __getitem__(self, key: str) -> list[int]:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, assignment: Mapping[str, int], length: int) -> None:
        """Append this round's assignment of the clients that took part in it; the last `length` are kept."""
        for key, model in assignment.items():
            self.entries[key] = [*self.entries.get(key, []), model][-length:]

    def heard(self, participants: Iterable[str], answered: Container[str]) -> None:
        """Note who returned a valid update in a round."""
        for key in participants:
            if key in answered:
                self.silent.pop(key, None)
            else:
                self.silent[key] = self.silent.get(key, 0) + 1

    def gone(self, rounds: int) -> set[str]:
        """Return the clients that have returned nothing valid for so many rounds running."""
        return {key for key, silent in self.silent.items() if silent >= rounds}
