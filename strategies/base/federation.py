"""The clients of a run: who they claim to be, who is admitted, who is online, who takes part in a round."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_low

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Read, Replies, Request, T, U, Waiting, alike, log, send, sort_replies
from florets.strategies.base.report import Client, named
from florets.strategies.settings import sampled_of
from florets.task.randomness import client_number
from florets.task.wire import codec, kinds
from florets.task.wire.flower import INSTALLED, NodeInfo, filled, minor
from florets.task.wire.leaving import refusal
from florets.task.wire.replies import Introduction, key_problem

_SETTLE_SECONDS = 0.5
_MOST_TRIES = 3
_MOST_PROBLEMS = 3
_NO_NODE = 0
_MOST_TIMES_MEDIAN = 1000
"""Most examples that a client may claim, in those of the median client, before it would outweigh all others."""
_FEWEST_COUNTS = 3
"""Of two counts that differ either may be wrong."""


class FederationError(RuntimeError):
    """The federation cannot run this experiment; the text says why and what to do."""


class RoundFailed(FederationError):
    """A round brought too few valid replies: it can be repeated."""


class BudgetSpent(FederationError):
    """Another round would take the run beyond `privacy.epsilon`."""


class TrainingDiverged(RoundFailed):
    """A round brought too few valid replies because losses or models are no longer finite."""


class WrongNodeCount(FederationError):
    """Flower simulates another number of nodes than the experiment has clients."""


@dataclass
class Federation:
    """Finds the clients behind Flower's nodes and draws participants.

    `num_clients` None: all that are online. `fingerprint` is the hash of the code that clients must run (None: any),
    `handlers` and `leaving` what their owners must allow. With `compares` a client's number of samples is compared
    with the others'. `subsets` are settings that ask for an answer from so many samples, for the owners' rules.
    `known_at` says what a simulation's own task knows of a client in a round whose groups change.
    """

    num_clients: int | None
    start_timeout: float
    fingerprint: str | None = None
    min_clients: int | None = None
    handlers: Sequence[str] = ()
    leaving: Collection[str] = ()
    compares: bool = True
    subsets: Mapping[str, int] = field(default_factory=dict)
    known_at: Callable[[Client, int], Client] | None = None
    clients: dict[str, Client] = field(default_factory=dict)
    is_simulated: bool = True
    _online: set[int] = field(default_factory=set)
    _names: dict[int, str] = field(default_factory=dict)
    """What all nodes are called that have been online, by node id."""
    _tries: Counter[int] = field(default_factory=Counter)
    _doubles: dict[int, int] = field(default_factory=dict)
    """Nodes that call themselves a client who is online under another node id, and that id."""

    @property
    def least(self) -> int:
        """Clients that are needed to start."""
        return self.min_clients or self.num_clients or 1

    def refresh(self, grid: Grid, config: ConfigRecord) -> None:
        """Find out who is online and let new nodes introduce themselves; each has three tries.

        Of two nodes with one key the one registered under it keeps it, else the one that has it already, else the one
        with the lower node id. FederationError if too few can start.
        """
        if not self.clients:
            self._introduce(self.wait_for_nodes(grid), grid, config)
            return

        def look() -> list[Client]:
            self._introduce(self._look(grid), grid, config)
            return self.online()

        if look():
            return
        # As at the start clients get time to come back, and then a moment for the others of them.
        time.sleep(_SETTLE_SECONDS)
        if not self._settled(look, "clients that come back"):
            raise RoundFailed(f"no client came back online within {self.start_timeout:g} s; start SuperNodes")

    def wait_for_nodes(self, grid: Grid) -> list[int]:
        """Return the nodes online, once those that the run needs are there or the deadline has passed."""
        # As long as the deadline allows it is all of them that are waited for, not the least number.
        wanted, is_own = self.num_clients or self.least, self.num_clients is None and self.least > 1
        # Simulated nodes register within moments; real ones come one by one, minutes apart.
        nodes = self._settled(lambda: list(grid.get_node_ids()), f"{wanted} nodes", wanted, settles=not is_own)
        if is_own and len(nodes) < wanted:
            raise FederationError(
                f"{len(nodes)} of min_clients={wanted} nodes came online within {self.start_timeout:g} s; "
                "start the other SuperNodes, or lower min_clients, or raise start_timeout"
            )
        if not nodes:
            raise RoundFailed(f"no node came online within {self.start_timeout:g} s; start SuperNodes first")
        return nodes

    def _settled(
        self, look: Callable[[], list[U]], what: str, wanted: float = math.inf, settles: bool = True
    ) -> list[U]:
        """Look again and again until as many are there as are wanted, no more come, or the deadline has passed."""
        deadline, wait, before = time.monotonic() + self.start_timeout, Waiting(), 0
        while len(found := look()) < wanted and time.monotonic() < deadline:
            if settles and found and len(found) == before:
                break
            wait.report(deadline, partial("{}, of which {} are online".format, what, len(found)))
            before = len(found)
            time.sleep(_SETTLE_SECONDS)
        return found

    def _look(self, grid: Grid) -> list[int]:
        """Return the nodes that are online, without those that have lost their place."""
        nodes = set(grid.get_node_ids())
        # A SuperNode that is mended and started again has the same node id.
        self._tries = Counter({node: tries for node, tries in self._tries.items() if node in nodes})
        self._doubles = {node: holder for node, holder in self._doubles.items() if {node, holder} <= nodes}
        barred = self._doubles.keys() | {node for node, tries in self._tries.items() if tries >= _MOST_TRIES}
        return sorted(nodes - barred)

    def begin_round(self, server_round: int) -> None:
        """Update simulated clients by what the server knows about them in this round, see `known_at`."""
        if self.known_at is not None:
            self.clients = {key: self.known_at(client, server_round) for key, client in self.clients.items()}

    def _introduce(self, nodes: Iterable[int], grid: Grid, config: ConfigRecord) -> None:
        """Take these nodes for those online, and let the new ones among them say who they are."""
        first, self._online = not self.clients, set(nodes)
        new = sorted(self._online - {client.node_id for client in self.clients.values()})
        if not new:
            return
        self._tries.update(new)
        handlers = {kinds.HANDLERS: list(self.handlers)} if self.handlers else {}
        config = filled(config.copy(), {**handlers, **self.subsets})

        def read(_: str, content: RecordDict) -> Introduction:
            return codec.read(Introduction, content)

        infos, hellos, replies = ask_nodes(grid, new, kinds.HELLO, config, read, self.start_timeout)
        # All nodes of a simulation are told the same number, and a real one says 0. A single one that says another is
        # refused below.
        said = {hello.num_partitions for hello in hellos.values()}
        self.is_simulated = self.is_simulated and 0 not in said
        if first and self.num_clients and said and not said & {0, self.num_clients}:
            raise WrongNodeCount(
                f"this experiment has num_clients={self.num_clients}, but Flower started {max(said)} SuperNodes. "
                f'Give the same number to both: --federation-config "num-supernodes={self.num_clients} '
                'client-resources-num-cpus=1"'
            )
        introduced = {node: _client_of(infos[node], hello) for node, hello in hellos.items()}
        self._names |= {node: infos[node].name or f"node {node}" for node in new}
        self._names |= {node: client.key for node, client in introduced.items()}
        refused = {node: why for node, hello in hellos.items() if (why := self._problem_of(introduced[node], hello))}
        if self.compares:
            refused |= self._implausible({node: client for node, client in introduced.items() if node not in refused})
        self._tries.update(dict.fromkeys(refused, _MOST_TRIES))
        names = {node: info.name for node, info in infos.items()}
        doubles = [self._admit(client, names) for node, client in sorted(introduced.items()) if node not in refused]
        self.clients = dict(sorted(self.clients.items()))
        reasons_of = {introduced[node].key: problem for node, problem in refused.items()}
        groups = sorted(alike(reasons_of), key=len, reverse=True)
        problems = [f"client {named(keys)} cannot take part: {reasons_of[keys[0]]}" for keys in groups]
        problems += filter(None, doubles)
        if first and len(self.clients) < self.least:
            wanted = self.num_clients or self.least
            needed = "" if wanted == self.least else f" (min_clients={self.least})"
            reasons = "; ".join(filter(None, [replies.failures(), *problems[:_MOST_PROBLEMS]]))
            raise FederationError(
                f"{len(self.clients)} of {wanted} clients could start{needed}: "
                f"{reasons or 'the other nodes are not online'}"
            )
        # Not before: an error says why by itself.
        replies.warn()
        for problem in problems:
            log.warning("%s", problem)

    def _admit(self, client: Client, names: Mapping[int, str]) -> str:
        """Let a client in; where two nodes have its key, return which of them is left out, and the remedy."""
        del self._tries[client.node_id]
        # A key that is known already is a node that came back under another id, if the first one is offline.
        holder = self.clients.get(client.key)
        if holder is None or holder.node_id not in self._online:
            self.clients[client.key] = client
            return ""
        kept, lost = holder.node_id, client.node_id
        # A node can call itself by the name of another; which one is registered under it the SuperLink says.
        if names.get(kept) != client.key == names[lost]:
            kept, lost = lost, kept
            self.clients[client.key] = client
        self._doubles[lost], self._names[lost] = kept, _described(lost, client.key)
        return (
            f"nodes {kept} and {lost} both call themselves client {client.key!r}; give each node a different "
            f"client-id in its node config. Node {lost} is left out as long as the other one is online"
        )

    def _problem_of(self, client: Client, hello: Introduction) -> str | None:
        """Return why a client cannot take part, as far as its own introduction shows."""
        if hello.never_send and (problem := refusal(hello.never_send.split(","), self.leaving)):
            return problem
        # A registered name has not been checked before.
        if problem := key_problem(client.key):
            return f"its name {client.key[:60]!r} {problem}"
        if self.fingerprint is not None and hello.fingerprint != self.fingerprint:
            own = f", with the strategy's handlers {', '.join(self.handlers)}" if self.handlers else ""
            remedy = (
                "Simulated clients import from the folder in which the SuperLink was started: "
                "start the SuperLink in an empty folder, or in this project's, and run again"
                if hello.num_partitions
                else "Install the server's version of florets on the node and restart its SuperNode"
            )
            return f"it runs other code ({hello.fingerprint}) than the server ({self.fingerprint}{own}). {remedy}"
        # Flower itself lets such a node in.
        if minor(hello.flower) != minor(INSTALLED):
            return (
                f"it runs Flower {hello.flower}, and the server {INSTALLED}; a federation needs one minor version: "
                f'pip install "flwr=={minor(INSTALLED)}.*" on the node, and start its SuperNode again'
            )
        if (count := self.num_clients) and hello.num_partitions not in (0, count):
            return f"it says that {hello.num_partitions} nodes are simulated, and the run has num_clients={count}"
        return None

    def _implausible(self, introduced: Mapping[int, Client]) -> dict[int, str]:
        """Return by node why a client's claimed number of examples is not believed."""
        counts = [client.num_examples for client in (*introduced.values(), *self.clients.values())]
        if len(counts) < _FEWEST_COUNTS:
            return {}
        usual = median_low(counts)
        return {
            node: f"it claims {client.num_examples} training samples, over {_MOST_TIMES_MEDIAN} times those of the "
            f"median client ({usual}), and would outweigh all others. If the number is right, split its data over "
            "several nodes, or give them a separate run"
            for node, client in introduced.items()
            if client.num_examples > _MOST_TIMES_MEDIAN * usual
        }

    @property
    def left_out(self) -> list[str]:
        """Names of the nodes that were online and could not take part so far."""
        # A registered name outlives a node id, and a node that hosts clients may have been refused before.
        inside = {name for key in self.clients for name in (key, key.rpartition("/")[0])}
        nodes = {client.node_id for client in self.clients.values()}
        return sorted({name for node, name in self._names.items() if node not in nodes and name not in inside})

    def remember(self, clients: Iterable[Client]) -> None:
        """Add clients of an earlier part of the run; those not here now count as offline."""
        for client in clients:
            self.clients.setdefault(client.key, replace(client, node_id=_NO_NODE))
        self.clients = dict(sorted(self.clients.items()))

    def online(self) -> list[Client]:
        """Return the clients that are online, in the order of their keys."""
        return [client for client in self.clients.values() if client.node_id in self._online]

    def sample(
        self, fraction: float, generator: np.random.Generator, among: Callable[[Client], bool]
    ) -> list[Client]:
        """Draw floor(fraction * M) of the M online clients (at least one) that `among` accepts, sorted by key."""
        online = self.online()
        if not online:
            raise RoundFailed("no client is online")
        clients, count = [client for client in online if among(client)], sampled_of(fraction, len(online))
        if count >= len(clients):
            return clients
        return [clients[index] for index in sorted(generator.choice(len(clients), size=count, replace=False))]


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
    called = {_described(node, infos[node].name): node for node in nodes}
    requests = []
    for name, node in called.items():
        content = filled(RecordDict(), {kinds.CONFIG: with_number(config, infos[node])})
        requests.append(Request(name, Message(content, node, kind, ttl=timeout, group_id="0")))
    names = {node: name for name, node in called.items()}
    arrived = send(grid, [request.message for request in requests], timeout, names.__getitem__)
    replies = sort_replies(requests, arrived, read)
    return infos, {called[name]: answer for name, answer in replies.ok}, replies


def _described(node_id: int, name: str) -> str:
    """Return how a node is named in messages; `name` is the one that it is registered under, or claims."""
    return f"{name} (node {node_id})" if name else f"node {node_id}"


def _client_of(node: NodeInfo, hello: Introduction) -> Client:
    """Return a client as it introduced itself; the name under which its node is registered is its key."""
    key = client_key(node, hello.key)
    if (node.name or hello.key) == kinds.NO_KEY:
        log.warning("node %d has no name: it will be client %s; set client-id in its node config", node.node_id, key)
    return Client(key, node.node_id, client_number(key), hello.num_examples, hello.cluster, hello.device)
