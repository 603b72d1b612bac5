"""The rule for a stable client, which client and server share."""

from collections.abc import Sequence


def is_stable(history: Sequence[object], num_rounds: int) -> bool:
    """Return whether a client's last `num_rounds` assignments are all equal.

    Parameters
    ----------
    history
        The client's assignments, oldest first, one entry for each round in which it took part.
    num_rounds
        Entries that must be there and agree; 0 or less: nothing is asked, so nothing is declared.

    Source: CLoVE section 3, "Checking for cluster stability". Deviation: CLoVE's published code compares only the
    first and the last of three entries.
    """
    return 0 < num_rounds <= len(history) and len(set(history[-num_rounds:])) == 1
