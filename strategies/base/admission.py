"""Admission to a run: clients' claims about themselves, checked against the run and against the other clients."""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low

from florets.strategies.base.exchange import alike
from florets.strategies.base.report import Client
from florets.strategies.base.waiting import named
from florets.task.randomness import client_number
from florets.task.wire import kinds
from florets.task.wire.introduction import Introduction, key_problem

log = logging.getLogger("florets")

MOST_TIMES_MEDIAN = 1000
"""Most examples that a client may claim, in those of the median client.

A count is a client's weight in averages, and only the other clients' counts say what is plausible. Benign federations
stay below: a client with more would make every average its own model.
"""

_FEWEST_COUNTS = 3
"""Of two counts that differ nothing says which one is wrong."""


def client_key(node_id: int, told: str, registered_name: str, public_key: bytes) -> str:
    """Return the key of a client that calls itself `told`: the name that its node is registered under comes first."""
    key = registered_name or told
    return hashlib.sha256(public_key or str(node_id).encode()).hexdigest()[:16] if key == kinds.NO_KEY else key


def client_of(node_id: int, hello: Introduction, registered_name: str, public_key: bytes) -> Client:
    """Return a client as it introduced itself; the name that its node is registered under is its key."""
    key = client_key(node_id, hello.key, registered_name, public_key)
    if (registered_name or hello.key) == kinds.NO_KEY:
        log.warning("node %d has no name: it will be client %s; set client-id in its node config", node_id, key)
    return Client(key, node_id, client_number(key), hello.num_examples, hello.cluster, hello.device)


def problem_of(
    client: Client, hello: Introduction, num_clients: int | None, fingerprint: str | None, handlers: Sequence[str]
) -> str | None:
    """Return why a client cannot take part, as far as its own introduction shows; see `Federation`."""
    return _name_problem(client) or _other_code(hello, fingerprint, handlers) or _other_simulation(hello, num_clients)


def _name_problem(client: Client) -> str | None:
    """Return why a client's key cannot be one; a registered name has not been checked before."""
    problem = key_problem(client.key)
    return problem and f"its name {client.key[:60]!r} {problem}"


def _other_code(hello: Introduction, fingerprint: str | None, handlers: Sequence[str]) -> str | None:
    """Return how a client's code differs from the server's; None where it does not, or any will do."""
    if fingerprint is None or hello.fingerprint == fingerprint:
        return None
    own = f", with the strategy's handlers {', '.join(handlers)}" if handlers else ""
    return (
        f"it runs other code ({hello.fingerprint}) than the server ({fingerprint}{own}). "
        "Simulated clients import from the folder in which the SuperLink was started: "
        "start the SuperLink in an empty folder, or in this project's, and run again"
    )


def _other_simulation(hello: Introduction, num_clients: int | None) -> str | None:
    """Return that a client claims to be of a simulation of another size; None where it does not."""
    if not num_clients or hello.num_partitions in (0, num_clients):
        return None
    return f"it says that {hello.num_partitions} nodes are simulated, and the run has num_clients={num_clients}"


def implausible_counts(claimed: Mapping[int, int], others: Iterable[int]) -> dict[int, str]:
    """Return by node why its number of examples is not believed.

    Parameters
    ----------
    claimed
        Numbers that nodes claim now.
    others
        Numbers of the clients that take part already.
    """
    counts = [*claimed.values(), *others]
    if len(counts) < _FEWEST_COUNTS:
        return {}
    most = MOST_TIMES_MEDIAN * median_low(counts)
    return {
        node_id: f"it claims {count} training samples, over {MOST_TIMES_MEDIAN} times those of the median client "
        f"({median_low(counts)}), and would outweigh all others. If the number is right, its data belong in a run of "
        "their own, or in several nodes"
        for node_id, count in claimed.items()
        if count > most
    }


def one_key_twice(key: str, kept: int, lost: int) -> str:
    """Return what is said of two nodes with one key, of which one keeps the client's place."""
    return (
        f"nodes {kept} and {lost} both call themselves client {key!r}; give each node a different client-id in its "
        f"node config. Node {lost} is left out while the other one is online"
    )


def in_words(refused: Mapping[str, str]) -> list[str]:
    """Return why clients cannot take part, in one line for each reason; the commonest come first."""
    groups = sorted(alike(refused), key=len, reverse=True)
    return [f"client {named(keys)} cannot take part: {refused[keys[0]]}" for keys in groups]
