"""Introductions of nodes: the client that each one is, and what is implausible in what it claims."""

import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low

from flwr.app import ConfigRecord

from florets.strategies.base.report import Client
from florets.task.randomness import client_number
from florets.task.wire import kinds
from florets.task.wire.flower import INSTALLED, filled, minor
from florets.task.wire.leaving import refusal
from florets.task.wire.replies import Introduction, key_problem

log = logging.getLogger("florets")

MOST_TIMES_MEDIAN = 1000
"""Most examples that a client may claim, in those of the median client.

A count is a client's weight in averages, and only the other clients' counts say what is plausible. Benign federations
stay below: a client with more would make every average its own model.
"""

_FEWEST_COUNTS = 3
"""Of two counts that differ either may be wrong."""


def client_key(node_id: int, claimed: str, registered_name: str, public_key: bytes) -> str:
    """Return the key of a client that calls itself `claimed`; its node's registered name takes precedence."""
    key = registered_name or claimed
    return hashlib.sha256(public_key or str(node_id).encode()).hexdigest()[:16] if key == kinds.NO_KEY else key


def with_number(config: ConfigRecord, node_id: int, registered_name: str, public_key: bytes) -> ConfigRecord:
    """Return a copy of a first message's settings with the number by which the node is to draw; see `client_key`."""
    key = client_key(node_id, kinds.NO_KEY, registered_name, public_key)
    return filled(
        config.copy(), {kinds.CLIENT_NUMBER if registered_name else kinds.UNNAMED_NUMBER: client_number(key)}
    )


def client_of(node_id: int, hello: Introduction, registered_name: str, public_key: bytes) -> Client:
    """Return a client as it introduced itself; the name under which its node is registered is its key."""
    key = client_key(node_id, hello.key, registered_name, public_key)
    if (registered_name or hello.key) == kinds.NO_KEY:
        log.warning("node %d has no name: it will be client %s; set client-id in its node config", node_id, key)
    return Client(key, node_id, client_number(key), hello.num_examples, hello.cluster, hello.device)


def problem_of(
    client: Client,
    hello: Introduction,
    num_clients: int | None,
    fingerprint: str | None,
    handlers: Sequence[str],
    leaving: Collection[str] = (),
) -> str | None:
    """Return why a client cannot take part, as far as its own introduction shows; see `Federation`."""
    if hello.never_send and (problem := refusal(hello.never_send.split(","), leaving)):
        return problem
    # A registered name has not been checked before.
    if problem := key_problem(client.key):
        return f"its name {client.key[:60]!r} {problem}"
    if fingerprint is not None and hello.fingerprint != fingerprint:
        own = f", with the strategy's handlers {', '.join(handlers)}" if handlers else ""
        remedy = (
            "Simulated clients import from the folder in which the SuperLink was started: "
            "start the SuperLink in an empty folder, or in this project's, and run again"
            if hello.num_partitions
            else "Install the server's version of florets on the node and restart its SuperNode"
        )
        return f"it runs other code ({hello.fingerprint}) than the server ({fingerprint}{own}). {remedy}"
    # Flower itself lets such a node in.
    if minor(hello.flower) != minor(INSTALLED):
        return (
            f"it runs Flower {hello.flower}, and the server {INSTALLED}; a federation needs one minor version: "
            f'pip install "flwr=={minor(INSTALLED)}.*" on the node, and start its SuperNode again'
        )
    if num_clients and hello.num_partitions not in (0, num_clients):
        return f"it says that {hello.num_partitions} nodes are simulated, and the run has num_clients={num_clients}"
    return None


def implausible_counts(claimed: Mapping[int, int], others: Iterable[int]) -> dict[int, str]:
    """Return by node why its claimed number of examples is not believed; `others` take part already."""
    counts = [*claimed.values(), *others]
    if len(counts) < _FEWEST_COUNTS:
        return {}
    most = MOST_TIMES_MEDIAN * median_low(counts)
    return {
        node_id: f"it claims {count} training samples, over {MOST_TIMES_MEDIAN} times those of the median client "
        f"({median_low(counts)}), and would outweigh all others. If the number is right, split its data over "
        f"several nodes, or give them a separate run"
        for node_id, count in claimed.items()
        if count > most
    }
