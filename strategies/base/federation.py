"""The clients of a run: who is admitted, who is online, who takes part in a round."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from florets.strategies.base.exchange import Waiting, alike, log
from florets.strategies.base.introductions import ask_nodes, client_of, described, implausible_counts, problem_of
from florets.strategies.base.report import Client, named
from florets.strategies.settings import sampled_of
from florets.task.wire import codec, kinds
from florets.task.wire.flower import filled
from florets.task.wire.replies import Introduction

_SETTLE_SECONDS = 0.5
_MOST_TRIES = 3
_MOST_PROBLEMS = 3
_NO_NODE = 0


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


class Federation:
    """Finds the clients behind Flower's nodes and draws participants.

    `num_clients` None: all that are online. `fingerprint` is the hash of the code that clients must run (None: any),
    `handlers` and `leaving` what their owners must allow. With `compares` a client's number of samples is compared
    with the others'. `known_at` says what a simulation's own task knows of a client in a round whose groups change.
    `subsets` are settings that ask for an answer from so many samples, for the owners' rules.
    """

    def __init__(
        self,
        num_clients: int | None,
        start_timeout: float,
        fingerprint: str | None = None,
        min_clients: int | None = None,
        handlers: Sequence[str] = (),
        leaving: Collection[str] = (),
        compares: bool = True,
        subsets: Mapping[str, int] | None = None,
    ) -> None:
        self.num_clients, self.compares = num_clients, compares
        self.min_clients = min_clients or num_clients or 1
        # Real nodes come one by one, minutes apart.
        self._patient = num_clients is None and min_clients is not None
        self.start_timeout = start_timeout
        self.fingerprint = fingerprint
        self.handlers, self.leaving = list(handlers), leaving
        self.clients: dict[str, Client] = {}
        self.known_at: Callable[[Client, int], Client] | None = None
        self.is_simulated = True
        self.subsets = subsets or {}
        self._online: set[int] = set()
        # What all nodes are called that have been online, by node id.
        self._names: dict[int, str] = {}
        self._tries: Counter[int] = Counter()
        # Nodes that call themselves a client who is online under another node id, and that id.
        self._doubles: dict[int, int] = {}

    def refresh(self, grid: Grid, config: ConfigRecord) -> None:
        """Find out who is online and let new nodes introduce themselves; each has three tries.

        Of two nodes with one key the one registered under it keeps it, else the one that has it already, else the one
        with the lower node id. FederationError if fewer than `min_clients` can start.
        """
        if not self.clients:
            self._introduce(self.wait_for_nodes(grid), grid, config)
            return
        deadline = time.monotonic() + self.start_timeout
        self._introduce(self._look(grid), grid, config)
        if self.online():
            return
        # Nobody there: as at the start clients get time to come back, and then a moment for the others of them.
        before, wait = 0, Waiting()
        while time.monotonic() < deadline and (not before or len(self.online()) > before):
            before = len(self.online())
            wait.report(deadline, lambda: "a client to come back online")
            time.sleep(_SETTLE_SECONDS)
            self._introduce(self._look(grid), grid, config)
        if not self.online():
            raise RoundFailed(f"no client came back online within {self.start_timeout:g} s; start SuperNodes")

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
        handlers = {kinds.HANDLERS: self.handlers} if self.handlers else {}
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
        introduced = {node: client_of(infos[node], hello) for node, hello in hellos.items()}
        names = {node: info.name for node, info in infos.items()}
        self._names |= {node: names[node] or f"node {node}" for node in new}
        self._names |= {node: client.key for node, client in introduced.items()}
        run = (self.num_clients, self.fingerprint, self.handlers, self.leaving)
        refused = {node: why for node, hello in hellos.items() if (why := problem_of(introduced[node], hello, *run))}
        claimed = {node: client.num_examples for node, client in introduced.items() if node not in refused}
        known = [client.num_examples for client in self.clients.values()]
        refused |= implausible_counts(claimed, known) if self.compares else {}
        self._tries.update(dict.fromkeys(refused, _MOST_TRIES))
        doubles = []
        for node_id, client in sorted(introduced.items()):
            if node_id in refused:
                continue
            del self._tries[node_id]
            # A key that is known already is a node that came back under another id, if the first one is offline.
            holder = self.clients.get(client.key)
            if holder is not None and holder.node_id in self._online:
                # A node can call itself by the name of another; which one is registered under it the SuperLink says.
                is_impostor = names.get(holder.node_id) != client.key == names[node_id]
                kept, lost = (node_id, holder.node_id) if is_impostor else (holder.node_id, node_id)
                doubles.append(
                    f"nodes {kept} and {lost} both call themselves client {client.key!r}; give each node a different "
                    f"client-id in its node config. Node {lost} is left out as long as the other one is online"
                )
                self._doubles[lost], self._names[lost] = kept, described(lost, client.key)
                if lost == node_id:
                    continue
            self.clients[client.key] = client
        self.clients = dict(sorted(self.clients.items()))
        reasons_of = {introduced[node].key: problem for node, problem in refused.items()}
        groups = sorted(alike(reasons_of), key=len, reverse=True)
        problems = [f"client {named(keys)} cannot take part: {reasons_of[keys[0]]}" for keys in groups] + doubles
        if first and len(self.clients) < self.min_clients:
            wanted = self.num_clients or self.min_clients
            needed = "" if wanted == self.min_clients else f" (min_clients={self.min_clients})"
            reasons = "; ".join(filter(None, [replies.failures(), *problems[:_MOST_PROBLEMS]]))
            raise FederationError(
                f"{len(self.clients)} of {wanted} clients could start{needed}: "
                f"{reasons or 'the other nodes are not online'}"
            )
        # Not before: an error says why by itself.
        replies.warn()
        for problem in problems:
            log.warning("%s", problem)

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
        self, fraction: float, generator: np.random.Generator, among: Callable[[Client], bool] | None = None
    ) -> list[Client]:
        """Draw floor(fraction * M) of the M online clients (at least one) that `among` accepts, sorted by key."""
        clients = self.online()
        if not clients:
            raise RoundFailed("no client is online")
        count = sampled_of(fraction, len(clients))
        if among is not None:
            clients = [client for client in clients if among(client)]
        chosen = generator.choice(len(clients), size=count, replace=False) if count < len(clients) else None
        return clients if chosen is None else [clients[index] for index in sorted(chosen)]

    def wait_for_nodes(self, grid: Grid) -> list[int]:
        """Return the nodes online, once those that the run needs are there or the deadline has passed."""
        # Simulated nodes register within moments; deployed ones come one by one.
        deadline = time.monotonic() + self.start_timeout
        nodes = list(grid.get_node_ids())
        # As long as the deadline allows it is all of them that are waited for, not the least number.
        wanted, wait, settled = self.num_clients or self.min_clients, Waiting(), False
        while len(nodes) < wanted and not settled and time.monotonic() < deadline:
            time.sleep(_SETTLE_SECONDS)
            before, nodes = nodes, list(grid.get_node_ids())
            wait.report(deadline, partial("nodes: {} of {} are online".format, len(nodes), wanted))
            settled = bool(nodes) and len(nodes) == len(before) and not self._patient
        if self._patient and len(nodes) < wanted:
            raise FederationError(
                f"{len(nodes)} of min_clients={self.min_clients} nodes came online within {self.start_timeout:g} s; "
                "start the other SuperNodes, or lower min_clients, or raise start_timeout"
            )
        if not nodes:
            raise RoundFailed(f"no node came online within {self.start_timeout:g} s; start SuperNodes first")
        return nodes
