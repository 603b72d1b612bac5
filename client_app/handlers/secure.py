"""A client's part in secure aggregation: it sends its update masked, and holds the server to the protocol."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ConfigRecord, RecordDict

from florets.client_app.client import Client
from florets.client_app.training import sends_gradient
from florets.task.wire import kinds, masking
from florets.task.wire.codec import pack
from florets.task.wire.noise import within
from florets.task.wire.records import view_array

_STATE = "secure-"
_IN_CLEAR = (kinds.TRAIN, kinds.TRAIN_SELECT, kinds.TRAIN_ESTIMATE)


@dataclass
class Standing:
    """How far a client is in its last masked round, and what it keeps until the round ends.

    The last step is "keys", "shares", "training" (left there by an error), "masked" or "unmasked". `keys` are two
    public ones of each member; `seed` is the secret of its mask, and the shares are those of its peers.
    """

    server_round: int = 0
    attempt: int = 0
    step: str = ""
    member: int = 0
    members: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    secret: bytes = b""
    box_secret: bytes = b""
    seed: bytes = b""
    own_share: bytes = b""
    peers: list[int] = field(default_factory=list)
    seed_shares: list[bytes] = field(default_factory=list)
    key_shares: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, client: Client) -> "Standing":
        """Return what this client keeps; clients that one node hosts each have their own."""
        record = client.context.state.get(_STATE + client.key)
        kept: dict[str, Any] = dict(record.items()) if isinstance(record, ConfigRecord) else {}
        return cls(**kept)

    def keep(self, client: Client, step: str) -> None:
        """Keep it from now on, with a step that is done."""
        self.step = step
        client.context.state[_STATE + client.key] = ConfigRecord(asdict(self))

    def at(self, client: Client, step: str) -> "Standing":
        """Return it if its last step is this one; ValueError for a message of another round, or a repeated one."""
        if (self.server_round, self.attempt, self.step) != (client.server_round, _attempt(client), step):
            raise ValueError(
                f"round {client.server_round}: this client is not at this step of secure aggregation, or has done it "
                "already; it does none twice"
            )
        return self

    def require(self, members: int) -> None:
        """Raise ValueError if so many members are too few for a sum."""
        if members < (least := max(masking.LEAST, masking.needed(len(self.members)))):
            raise ValueError(f"a sum of {members} members: this client takes part only with at least {least}")

    def public(self, member: int, place: int) -> bytes:
        """Return one of a member's two public keys, that for masks (0) or for shares (1)."""
        return self.keys[2 * self.members.index(member) + place]


def _attempt(client: Client) -> int:
    return int(client.number(kinds.ATTEMPT))


def refuse_clear(client: Client, kind: str) -> None:
    """Raise ValueError if a client that has begun a masked round in this run is asked for an update in clear."""
    if not client.context.state or _STATE + client.key not in client.context.state:
        return
    is_masked = kind == kinds.TRAIN and kinds.MASKING in client.content
    if not is_masked and (kind in _IN_CLEAR or kind.endswith(f".{kinds.CUSTOM}")):
        raise ValueError(f"{kind}: this client takes part in secure aggregation, and sends no update in clear")


def keys(client: Client) -> RecordDict:
    """Begin a masked round with new keys, and return the public ones.

    A round that has been unmasked is not tried again: two sums that differ by one member tell its update.
    """
    last, attempt = Standing.of(client), _attempt(client)
    begun, done = (last.server_round, last.attempt), last.step == "unmasked"
    if (client.server_round, attempt) <= begun or (done and client.server_round == last.server_round):
        raise ValueError(f"round {client.server_round}: this client has been in it already; it does none twice")
    now = Standing(client.server_round, attempt, secret=masking.new_secret(), box_secret=masking.new_secret())
    now.keep(client, "keys")
    both = [masking.public_bytes(masking.private_key(secret)) for secret in (now.secret, now.box_secret)]
    return pack(masking.PublicKeys, keys=both)


def shares(client: Client) -> RecordDict:
    """Return shares of this client's secrets, encrypted for each other member."""
    now = Standing.of(client).at(client, "keys")
    now.member, now.members = int(client.number(kinds.MEMBER)), masking.ring(client.config.get(kinds.MEMBERS))
    sent = client.config.get(kinds.KEYS)
    now.keys = [one for one in sent if isinstance(one, bytes)] if isinstance(sent, list) else []
    count = len(now.members)
    now.require(count)
    if count > masking.NEIGHBOURS + 1:
        raise ValueError(f"{count} members share masks, and {masking.NEIGHBOURS + 1} are the most")
    if len(now.keys) != 2 * count or len(set(now.keys)) != 2 * count:
        raise ValueError("members' public keys are not two for each, all different")
    own, boxes_key = masking.private_key(now.secret), masking.private_key(now.box_secret)
    if now.member not in now.members or now.keys.index(masking.public_bytes(own)) != 2 * now.members.index(
        now.member
    ):
        raise ValueError("this client's own public keys are not among the members'")
    now.seed = masking.new_seed()
    parts = [masking.shares_of(secret, masking.needed(count), count) for secret in (now.seed, now.secret)]
    boxes = []
    for member, *both in zip(now.members, *parts, strict=True):
        if member == now.member:
            now.own_share = both[0]
        else:
            key = masking.agreed(boxes_key, now.public(member, 1))
            boxes.append(masking.boxed(key, now.member, member, (both[0], both[1])))
    now.keep(client, "shares")
    return pack(masking.Boxes, boxes=boxes)


def masked(client: Client, train: Callable[[Client], RecordDict]) -> RecordDict:
    """Train and return the update, its loss and its weight, masked; nothing else of the reply leaves."""
    now = Standing.of(client).at(client, "shares")
    asked = client.content[kinds.MASKING]
    if not isinstance(asked, ConfigRecord):
        raise ValueError(f"{kinds.MASKING!r} is no record of settings")
    wanted: dict[str, Any] = dict(asked.items())
    now.peers = masking.ring(wanted.get(kinds.MEMBERS))
    boxes = wanted.get(kinds.BOXES)
    now.require(len(now.peers) + 1)
    if now.member in now.peers or not set(now.peers) <= set(now.members):
        raise ValueError("shares came of others than this client's fellow members")
    if not isinstance(boxes, list) or len(boxes) != len(now.peers):
        raise ValueError("there are not as many shares as members")
    # One try, even if it fails: whether a value fits is an answer too, which must not be had for many limits.
    now.keep(client, "training")
    boxes_key = masking.private_key(now.box_secret)
    for peer, box in zip(now.peers, boxes, strict=True):
        seed, key = masking.unboxed(masking.agreed(boxes_key, now.public(peer, 1)), peer, now.member, box)
        now.seed_shares.append(seed)
        now.key_shares.append(key)
    reply = train(client)
    arrays: Any = reply[kinds.ARRAYS]
    metrics: Any = reply[kinds.METRICS]
    names = client.arrays()
    values = _flat(arrays, names)
    if (bound := wanted.get(kinds.PRIVACY_CLIP)) is not None:
        # The server's noise is for updates of this norm, and it cannot shorten what it does not see.
        start = 0.0 if sends_gradient(client) else _flat(names, names)
        values = start + within(values - start, float(bound))
    weight = int(metrics[kinds.NUM_EXAMPLES]) if wanted.get(kinds.WEIGHTING) == "examples" else 1
    bits, limit = int(wanted[kinds.BITS]), float(wanted[kinds.LIMIT])
    total = masking.encoded(values, float(metrics[kinds.TRAIN_LOSS]), weight, bits, limit)
    total += masking.mask(now.seed, total.size)
    own = masking.private_key(now.secret)
    for peer in now.peers:
        common = masking.pairwise_mask(masking.agreed(own, now.public(peer, 0)), total.size)
        if now.member < peer:
            total += common
        else:
            total -= common
    now.keep(client, "masked")
    return pack(masking.Masked, masked=total)


def _flat(arrays: Mapping[str, Array], names: Iterable[str]) -> npt.NDArray[np.float64]:
    return np.concatenate([view_array(arrays[name]).ravel().astype(np.float64) for name in names])


def unmask(client: Client) -> RecordDict:
    """Return a share of the seed of each member that is alive, and of the secret key of each that is not.

    The round is over with it: a second answer could name other members, and give both of one's secrets away.
    """
    now = Standing.of(client).at(client, "masked")
    alive = set(masking.ring(client.config.get(kinds.ALIVE)))
    if now.member not in alive or not alive <= {*now.peers, now.member}:
        raise ValueError("the members that are alive are not those of this round")
    now.require(len(alive))
    of = dict(zip(now.peers, zip(now.seed_shares, now.key_shares, strict=True), strict=True))
    revealed = [
        now.own_share if member == now.member else of[member][0 if member in alive else 1]
        for member in sorted((*now.peers, now.member))
    ]
    Standing(now.server_round, now.attempt).keep(client, "unmasked")
    return pack(masking.Revealed, shares=revealed)
