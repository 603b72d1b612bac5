"""CLoVE's memory of assignments, and the clusters that it keeps once they are stable."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(eq=False)
class Histories(Mapping[str, list[int]]):
    """The last assignments of each client, one for each round in which it took part.

    In the paper each client keeps its own. Deviation: the server keeps them and sends each client its own, so that a
    client that restarts loses nothing; the declaration of stability stays the client's.
    """

    entries: dict[str, list[int]] = field(default_factory=dict)

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
