"""Secure aggregation on the server: once groups are frozen it learns only the sum of each group's updates.

The protocol is that of SecAgg within each group, in four exchanges: public keys; encrypted shares of each member's
secrets, which the server relays; training, whose replies are masked; and the shares that take the masks off the sum.
In a group of more than `NEIGHBOURS` + 1 each member shares masks with the nearest on a random ring (Bell et al.
2020).

A server that follows the protocol learns no more than the sum of at least `LEAST` members, even if it reads all
messages, as long as fewer than half of a member's neighbours help it. One that does not can invent members, since it
alone vouches for their keys, but cannot get both secrets of one.

Source: Bonawitz et al. 2017, Fig. 4, without the steps for a malicious server, which need keys that others vouch for.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from florets.strategies.base.exchange import Replies, Request, log
from florets.strategies.base.federation import FederationError
from florets.strategies.base.layer import Layer
from florets.strategies.base.models import Averaging, GradientAveraging, ModelAveraging
from florets.strategies.base.report import ADVICE, SUMMED, Client, Detail, named
from florets.strategies.base.round import Plan, Round
from florets.strategies.core.outliers import UPDATE_FACTOR
from florets.task.wire import codec, kinds, masking
from florets.task.wire.flower import filled
from florets.task.wire.replies import Update

_ON = "secure_aggregation=true"
T = TypeVar("T")


@dataclass
class Group:
    """One model's members in a masked round, by their places on a ring.

    `public` are their two public keys each, for masks and for shares; `boxes` by place of the sender its encrypted
    shares by place of the recipient; `bits` the binary places of the group's sum.
    """

    model: int
    keys: list[str]
    public: list[list[bytes]]
    boxes: dict[int, dict[int, bytes]] = field(default_factory=dict)
    bits: int = 0

    def fellows(self, place: int) -> list[int]:
        """Return the places with which a member shares masks, its own included."""
        return masking.neighbours(place, len(self.keys))

    def peers(self, place: int) -> list[int]:
        """Return the places whose shares a member was sent."""
        return [one for one in self.fellows(place) if one != place and one in self.boxes]

    def alive(self, vectors: Mapping[str, masking.Masked]) -> list[int]:
        """Return the places of those whose masked vectors came."""
        return [place for place in sorted(self.boxes) if self.keys[place] in vectors]

    def unmasked(self, vectors: Mapping[str, masking.Masked], shares: Mapping[str, masking.Revealed]) -> Any:
        """Return the sum of the vectors without masks; None where too few shares came, or false ones."""
        alive, given = self.alive(vectors), {place: list[bytes]() for place in self.boxes}
        for place in alive:
            if (revealed := shares.get(self.keys[place])) is not None:
                for member, share in zip(sorted((*self.peers(place), place)), revealed.shares, strict=True):
                    given[member].append(share)
        total = np.zeros_like(vectors[self.keys[alive[0]]].masked)
        for place in alive:
            total += vectors[self.keys[place]].masked
        for member in self.boxes:
            there = set(self.peers(member)) & set(alive)
            if len(given[member]) < (least := masking.needed(len(self.fellows(member)))):
                # Of one that has dropped out and shared masks with nobody who is there, nothing is in the sum.
                if member not in alive and not there:
                    continue
                return None
            if (secret := masking.joined(given[member][:least])) is None:
                return None
            if member in alive:
                total -= masking.mask(secret, total.size)
                continue
            try:
                own = masking.private_key(secret)
            except ValueError:
                return None
            if masking.public_bytes(own) != self.public[member][0]:
                return None
            for peer in there:
                common = masking.pairwise_mask(masking.agreed(own, self.public[peer][0]), total.size)
                # The peer's own part in the mask of both.
                if peer < member:
                    total -= common
                else:
                    total += common
        return total


class Masks(Layer):
    """The layer by which the server learns only sums, once groups are frozen."""

    name = "masks"
    under_noise = True

    def __init__(self, least: int) -> None:
        self._least, self._asked, self._has_summed = max(masking.LEAST, least), 0, False
        self._said: set[str] = set()

    def averaging(self, averaging: Averaging) -> Averaging:
        if type(averaging) not in (ModelAveraging, GradientAveraging):
            raise ValueError(
                f"{_ON}: {type(averaging).__name__} may need single updates; use averaging=models or gradients"
            )
        return averaging

    def trains(self, plan: Plan[Update], r: Round) -> Plan[Update]:
        self._asked = 0
        if r.strategy.is_frozen and plan.requests:
            plan = self._masked(r, plan)
            self._asked = len(plan.requests)
        return plan

    def seals(self, what: Literal["updates", "losses"]) -> str:
        hides = what == "updates" and self._asked > 0
        return f"{_ON}: of masked updates there are averages alone (Round.average); leave it out" if hides else ""

    def details(self, r: Round) -> Mapping[str, Detail]:
        if self._asked:
            return {SUMMED: float(self._asked)}
        if r.server_round == r.strategy.last_round and not self._has_summed:
            return {ADVICE: f"{_ON}: groups were not frozen in any round: all updates came in clear"}
        return {}

    def _masked(self, r: Round, plan: Plan[Update]) -> Plan[Any]:
        """Exchange keys and shares with the clients of a plan, and return it with masked training.

        Clients of groups that are too small are not asked: their model stays as it is.
        """
        kind = {request.message.metadata.message_type for request in plan.requests}
        unplaced = {one.key for one in plan.requests} - plan.groups.keys()
        if plan.keep is not None or kind - {kinds.TRAIN} or unplaced:
            raise ValueError(f"{_ON}: this strategy's round needs single updates; leave it out")
        with r.meter.part("secure"):
            groups = self._with_keys(r, plan)
            _share(r, groups)
        requests = self._masked_requests(r, groups, {request.key: request for request in plan.requests})
        if not requests:
            raise FederationError(
                f"{_ON}: no group has {self._least} clients that take part in round {r.server_round}, the least "
                "that a sum may have; let more clients take part, or leave it out"
            )
        self._has_summed = True

        def read(_: str, content: RecordDict) -> Any:
            return codec.read(masking.Masked, content, R=r.models.layout.size + 2)

        def reveal(replies: Replies[Any]) -> Replies[Update]:
            with r.meter.part("secure"):
                return self._reveal(r, groups, replies)

        return replace(plan, requests=requests, read=read, reveal=reveal)

    def _with_keys(self, r: Round, plan: Plan[Update]) -> list[Group]:
        """Group the clients of a plan by the model that they train, and ask for public keys (one exchange)."""
        members: dict[int, list[str]] = {}
        for request in plan.requests:
            members.setdefault(plan.groups[request.key], []).append(request.key)
        members = {model: keys for model, keys in sorted(members.items()) if self._suffices(model, keys)}
        asked: dict[str, dict[str, object]] = {key: {} for keys in members.values() for key in keys}
        found = _replies(r, kinds.SECURE_KEYS, asked, masking.PublicKeys, {})
        groups = []
        for model, keys in members.items():
            there = [key for key in keys if key in found]
            if self._suffices(model, there):
                # Nobody may know beforehand, or influence, who is whose neighbour.
                ring = secrets.SystemRandom().sample(there, len(there))
                groups.append(Group(model, ring, [found[key].keys for key in ring]))
        return groups

    def _suffices(self, model: int, keys: Sequence[str]) -> bool:
        """Say whether so many clients may be summed; log the first time that a group has too few."""
        if len(keys) >= self._least:
            return True
        text = f"model {model} stays as it is: its sum, which needs {self._least} clients, would be of {named(keys)}"
        if keys and text not in self._said:
            self._said.add(text)
            log.warning("%s: %s", _ON, text)
        return False

    def _masked_requests(self, r: Round, groups: Sequence[Group], requests: Mapping[str, Request]) -> list[Request]:
        """Return the training messages of those whose shares came, with the shares that they are sent."""
        found = []
        ledger, limit, clients = r.strategy.privacy, _limit(r), _clients(r)
        # Noise is for sums in which every client counts alike.
        is_uniform = ledger is not None or getattr(r.averaging, "weighting", "examples") == "uniform"
        common: dict[str, object] = {kinds.LIMIT: limit, kinds.WEIGHTING: "uniform" if is_uniform else "examples"}
        if ledger is not None and not ledger.is_local:
            common[kinds.PRIVACY_CLIP] = ledger.privacy.known_clip
        for group in groups:
            members = [group.keys[place] for place in group.boxes]
            if not self._suffices(group.model, members):
                continue
            group.bits = masking.scale_bits(
                limit, len(members) if is_uniform else sum(clients[key].num_examples for key in members)
            )
            for place in group.boxes:
                peers = group.peers(place)
                boxes = [group.boxes[peer][place] for peer in peers]
                own = {kinds.MEMBERS: peers, kinds.BOXES: boxes, kinds.BITS: group.bits, **common}
                request = requests[group.keys[place]]
                filled(request.message.content, {kinds.MASKING: filled(ConfigRecord(), own)})
                settings: Any = request.message.content[kinds.CONFIG]
                settings[kinds.ATTEMPT] = r.meter.tries
                found.append(request)
        return found

    def _reveal(self, r: Round, groups: Sequence[Group], replies: Replies[masking.Masked]) -> Replies[Update]:
        """Take the masks off each group's sum (one exchange); each member stands for its group's mean."""
        vectors, sent, counts = dict(replies.ok), dict[str, dict[str, object]](), {}
        summed = [group for group in groups if len(group.alive(vectors)) >= self._least]
        for group in summed:
            for place in group.alive(vectors):
                key, peers = group.keys[place], group.peers(place)
                counts[key] = len(peers) + 1
                sent[key] = {kinds.ALIVE: [one for one in (*peers, place) if group.keys[one] in vectors]}
        shares = _replies(r, kinds.SECURE_UNMASK, sent, masking.Revealed, counts)
        updates: dict[str, Update] = {}
        for group in groups:
            members = [group.keys[place] for place in group.alive(vectors)]
            total = group.unmasked(vectors, shares) if group in summed else None
            if total is None or (found := _mean(r, group, members, total)) is None:
                reason = f"the sum of model {group.model} could not be unmasked"
                replies = r.reject(replies, set(members), reason)
                continue
            mean, loss, weight = found
            for number, key in enumerate(members):
                own = weight // len(members) + (number < weight % len(members))
                updates[key] = Update(group.model, mean, own, loss)
        return replies.of(dict(sorted(updates.items())))


def _clients(r: Round) -> dict[str, Client]:
    return {client.key: client for client in (*r.online, *r.participants)}


def _replies(
    r: Round, kind: str, sent: Mapping[str, Mapping[str, object]], reply: type[T], counts: Mapping[str, int]
) -> dict[str, T]:
    """Send each client its settings in a message of a kind (one exchange); return the replies, of `counts` items."""
    clients, attempt = _clients(r), {kinds.ATTEMPT: r.meter.tries}
    requests = [r.request(kind, clients[key], None, {**attempt, **settings}) for key, settings in sent.items()]
    return dict(r.ask(requests, lambda key, content: codec.read(reply, content, n=counts.get(key))).ok)


def _share(r: Round, groups: Sequence[Group]) -> None:
    """Send each member the others' public keys, and take their encrypted shares (one exchange)."""
    sent, counts = dict[str, dict[str, object]](), {}
    for group in groups:
        for place, key in enumerate(group.keys):
            fellows = group.fellows(place)
            counts[key] = len(fellows) - 1
            public = [one for fellow in fellows for one in group.public[fellow]]
            sent[key] = {kinds.MEMBER: place, kinds.MEMBERS: fellows, kinds.KEYS: public}
    found = _replies(r, kinds.SECURE_SHARES, sent, masking.Boxes, counts)
    for group in groups:
        for place, key in enumerate(group.keys):
            if key in found:
                others = [fellow for fellow in group.fellows(place) if fellow != place]
                group.boxes[place] = dict(zip(others, found[key].boxes, strict=True))


def _limit(r: Round) -> float:
    """Return the largest value that an update may have: larger ones would be rejected as outliers."""
    return UPDATE_FACTOR * max(1.0, r.models.largest)


def _mean(r: Round, group: Group, members: Sequence[str], total: Any) -> tuple[Any, float, int] | None:
    """Return a sum's mean, mean loss and weight; None where no updates of these members have such a sum."""
    mean, loss, weight = masking.decoded(total, group.bits)
    limit, clients = _limit(r), _clients(r)
    most = sum(clients[key].num_examples for key in members)
    is_sum = len(members) <= weight <= most and 0 <= loss <= limit and np.abs(mean).max(initial=0.0) <= limit
    return (mean, loss, weight) if is_sum and math.isfinite(loss) else None
