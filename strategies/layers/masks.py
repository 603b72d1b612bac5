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
from dataclasses import dataclass, replace
from typing import Any

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


@dataclass
class Group:
    """One model's members in a masked round, by their places on a ring.

    `public` are their two public keys each, for masks and for shares; `boxes` by place of the sender its encrypted
    shares by place of the recipient; `bits` the binary places of the group's sum.
    """

    model: int
    keys: list[str]
    public: list[list[bytes]]
    boxes: dict[int, dict[int, bytes]]
    bits: int = 0

    def fellows(self, place: int) -> list[int]:
        """Return the places with which a member shares masks, its own included."""
        return masking.neighbours(place, len(self.keys))

    def peers(self, place: int) -> list[int]:
        """Return the places whose shares a member was sent."""
        return [one for one in self.fellows(place) if one != place and one in self.boxes]


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

    @property
    def seals(self) -> str:
        return f"{_ON}: of masked updates there are averages alone (Round.average); leave it out" * bool(self._asked)

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
        clients = {client.key: client for client in (*r.online, *r.participants)}
        with r.meter.part("secure"):
            groups = self._with_keys(r, plan, clients)
            self._share(r, groups, clients)
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
                return self._reveal(r, groups, clients, replies)

        return replace(plan, requests=requests, read=read, reveal=reveal)

    def _with_keys(self, r: Round, plan: Plan[Update], clients: Mapping[str, Client]) -> list[Group]:
        """Group the clients of a plan by the model that they train, and ask for public keys (one exchange)."""
        members: dict[int, list[str]] = {}
        for request in plan.requests:
            members.setdefault(plan.groups[request.key], []).append(request.key)
        asked = [key for model, keys in members.items() if self._suffices(model, keys) for key in keys]
        attempt = {kinds.ATTEMPT: r.meter.tries}
        found = dict(
            r.ask(
                [r.request(kinds.SECURE_KEYS, clients[key], None, attempt) for key in asked],
                lambda _, content: codec.read(masking.PublicKeys, content),
            ).ok
        )
        groups = []
        for model, keys in sorted(members.items()):
            there = [key for key in keys if key in found]
            if set(keys) <= set(asked) and self._suffices(model, there):
                # Nobody may know beforehand, or influence, who is whose neighbour.
                ring = secrets.SystemRandom().sample(there, len(there))
                groups.append(Group(model, ring, [found[key].keys for key in ring], {}))
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

    def _share(self, r: Round, groups: Sequence[Group], clients: Mapping[str, Client]) -> None:
        """Send each member the others' public keys, and take their encrypted shares (one exchange)."""
        requests, counts = [], {}
        for group in groups:
            for place, key in enumerate(group.keys):
                fellows = group.fellows(place)
                counts[key] = len(fellows) - 1
                sent = {
                    kinds.ATTEMPT: r.meter.tries,
                    kinds.MEMBER: place,
                    kinds.MEMBERS: fellows,
                    kinds.KEYS: [one for fellow in fellows for one in group.public[fellow]],
                }
                requests.append(r.request(kinds.SECURE_SHARES, clients[key], None, sent))
        found = dict(r.ask(requests, lambda key, content: codec.read(masking.Boxes, content, n=counts[key])).ok)
        for group in groups:
            for place, key in enumerate(group.keys):
                if key in found:
                    others = [fellow for fellow in group.fellows(place) if fellow != place]
                    group.boxes[place] = dict(zip(others, found[key].boxes, strict=True))

    def _masked_requests(self, r: Round, groups: Sequence[Group], requests: Mapping[str, Request]) -> list[Request]:
        """Return the training messages of those whose shares came, with the shares that they are sent."""
        found = []
        ledger = r.strategy.privacy
        bound = math.inf if ledger is None or ledger.is_local else ledger.privacy.known_clip
        weighting = getattr(r.averaging, "weighting", "examples")
        # Noise is for sums in which every client counts alike.
        uniform = weighting == "uniform" or ledger is not None
        limit = _limit(r)
        examples = {client.key: client.num_examples for client in (*r.online, *r.participants)}
        for group in groups:
            members = [group.keys[place] for place in group.boxes]
            if not self._suffices(group.model, members):
                continue
            most = sum(1 if uniform else examples[key] for key in members)
            group.bits = masking.scale_bits(limit, most)
            for place in group.boxes:
                peers = group.peers(place)
                asked = {
                    kinds.MEMBERS: peers,
                    kinds.BOXES: [group.boxes[peer][place] for peer in peers],
                    kinds.BITS: group.bits,
                    kinds.LIMIT: limit,
                    kinds.WEIGHTING: "uniform" if uniform else "examples",
                    **({} if math.isinf(bound) else {kinds.PRIVACY_CLIP: bound}),
                }
                request = requests[group.keys[place]]
                filled(request.message.content, {kinds.MASKING: filled(ConfigRecord(), asked)})
                settings: Any = request.message.content[kinds.CONFIG]
                settings[kinds.ATTEMPT] = r.meter.tries
                found.append(request)
        return found

    def _reveal(
        self, r: Round, groups: Sequence[Group], clients: Mapping[str, Client], replies: Replies[masking.Masked]
    ) -> Replies[Update]:
        """Take the masks off each group's sum (one exchange); each member stands for its group's mean."""
        vectors = dict(replies.ok)
        requests, counts = [], {}
        alive = {
            group.model: [place for place in sorted(group.boxes) if group.keys[place] in vectors] for group in groups
        }
        for group in groups:
            if len(alive[group.model]) < self._least:
                continue
            for place in alive[group.model]:
                key, peers = group.keys[place], group.peers(place)
                counts[key] = len(peers) + 1
                there = [one for one in (*peers, place) if group.keys[one] in vectors]
                sent = {kinds.ATTEMPT: r.meter.tries, kinds.ALIVE: there}
                requests.append(r.request(kinds.SECURE_UNMASK, clients[key], None, sent))
        replied = r.ask(requests, lambda key, content: codec.read(masking.Revealed, content, n=counts[key]))
        shares = dict(replied.ok)
        updates: dict[str, Update] = {}
        for group in groups:
            members = [group.keys[place] for place in alive[group.model]]
            total = _unmasked(group, alive[group.model], vectors, shares) if len(members) >= self._least else None
            found = None if total is None else _mean(r, group, [clients[key] for key in members], total)
            if found is None:
                reason = f"the sum of model {group.model} could not be unmasked"
                replies = r.reject(replies, set(members), reason)
            else:
                mean, loss, weight = found
                for number, key in enumerate(members):
                    own = weight // len(members) + (number < weight % len(members))
                    updates[key] = Update(group.model, mean, own, loss)
        return replies.of(dict(sorted(updates.items())))


def _limit(r: Round) -> float:
    """Return the largest value that an update may have: larger ones would be rejected as outliers."""
    return UPDATE_FACTOR * max(1.0, r.models.largest)


def _unmasked(
    group: Group, alive: Sequence[int], vectors: Mapping[str, masking.Masked], shares: Mapping[str, masking.Revealed]
) -> Any:
    """Return the sum of a group's vectors without masks; None where too few shares came, or false ones."""
    given: dict[int, list[bytes]] = {place: [] for place in group.boxes}
    for place in alive:
        if (revealed := shares.get(group.keys[place])) is not None:
            for member, share in zip(sorted((*group.peers(place), place)), revealed.shares, strict=True):
                given[member].append(share)
    total = np.zeros_like(vectors[group.keys[alive[0]]].masked)
    for place in alive:
        total += vectors[group.keys[place]].masked
    for member in group.boxes:
        if len(given[member]) < (least := masking.needed(len(group.fellows(member)))):
            # Of one that has dropped out and shared masks with nobody who is there, nothing is in the sum.
            if member not in alive and not set(group.peers(member)) & set(alive):
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
        if masking.public_bytes(own) != group.public[member][0]:
            return None
        for peer in set(group.peers(member)) & set(alive):
            common = masking.pairwise_mask(masking.agreed(own, group.public[peer][0]), total.size)
            # The peer's own part in the mask of both.
            if peer < member:
                total -= common
            else:
                total += common
    return total


def _mean(r: Round, group: Group, members: Sequence[Client], total: Any) -> tuple[Any, float, int] | None:
    """Return a sum's mean, mean loss and weight; None where no updates of these members have such a sum."""
    mean, loss, weight = masking.decoded(total, group.bits)
    limit, most = _limit(r), sum(client.num_examples for client in members)
    is_sum = len(members) <= weight <= most and 0 <= loss <= limit and np.abs(mean).max(initial=0.0) <= limit
    return (mean, loss, weight) if is_sum and math.isfinite(loss) else None
