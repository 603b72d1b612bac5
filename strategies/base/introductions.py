"""Introductions of nodes: the client that each one is, and what is implausible in what it claims."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Read, Replies, Request, T, exchange, log
from florets.strategies.base.report import Client
from florets.task.randomness import client_number
from florets.task.wire import kinds
from florets.task.wire.flower import INSTALLED, NodeInfo, filled, minor
from florets.task.wire.leaving import refusal
from florets.task.wire.replies import Introduction, key_problem

MOST_TIMES_MEDIAN = 1000
"""Most examples that a client may claim, in those of the median client, before it would outweigh all others."""

_FEWEST_COUNTS = 3
"""Of two counts that differ either may be wrong."""


def client_key(node: NodeInfo, claimed: str) -> str:
    """Return the key of a client that calls itself `claimed`; its node's registered name takes precedence."""
    key = node.name or claimed
    own = node.public_key or str(node.node_id).encode()
    return hashlib.sha256(own).hexdigest()[:16] if key == kinds.NO_KEY else key


def with_number(config: ConfigRecord, node: NodeInfo) -> ConfigRecord:
    """Return a copy of a first message's settings with the number by which the node is to draw."""
    number = kinds.CLIENT_NUMBER if node.name else kinds.UNNAMED_NUMBER
    return filled(config.copy(), {number: client_number(client_key(node, kinds.NO_KEY))})


def ask_nodes(
    grid: Grid, nodes: Sequence[int], kind: str, config: ConfigRecord, read: Read[T], timeout: float
) -> tuple[dict[int, NodeInfo], dict[int, T], Replies[T]]:
    """Ask nodes that have not said who they are; return what is registered of them, and their answers, by node."""
    infos = {node: NodeInfo(node) for node in nodes} | {info.node_id: info for info in grid.get_nodes()}
    called = {described(node, infos[node].name): node for node in nodes}
    requests = []
    for name, node in called.items():
        content = filled(RecordDict(), {kinds.CONFIG: with_number(config, infos[node])})
        requests.append(Request(name, Message(content, node, kind, ttl=timeout, group_id="0")))
    replies = exchange(grid, requests, read, timeout)
    return infos, {called[name]: answer for name, answer in replies.ok}, replies


def described(node_id: int, name: str) -> str:
    """Return how a node is named in messages; `name` is the one that it is registered under, or claims."""
    return f"{name} (node {node_id})" if name else f"node {node_id}"


def client_of(node: NodeInfo, hello: Introduction) -> Client:
    """Return a client as it introduced itself; the name under which its node is registered is its key."""
    key = client_key(node, hello.key)
    if (node.name or hello.key) == kinds.NO_KEY:
        log.warning("node %d has no name: it will be client %s; set client-id in its node config", node.node_id, key)
    return Client(key, node.node_id, client_number(key), hello.num_examples, hello.cluster, hello.device)


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
