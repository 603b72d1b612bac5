"""Primitives and messages of secure aggregation: keys, shares of secrets, masks, and vectors as integers.

Key agreement, Shamir's shares and the shares' encryption are as in Flower's SecAgg+, from the same libraries. But its
masks come from a generator with a 32-bit seed, which can be searched: here they are a keystream of AES-256; its
rounding ends at 32 bits: here vectors are integers modulo 2**64; its secret keys are shared as text, five times as
long.

Source: Bonawitz et al. 2017, Fig. 4; Bell et al. 2020, for the neighbours of a large group.
"""

import base64
import math
import os
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from Crypto.Protocol.SecretSharing import Shamir
from Crypto.Util.Padding import pad, unpad
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from florets.task.wire import kinds
from florets.task.wire.codec import Blobs, Tensor

LEAST = 3
"""Fewest members of a sum: from a sum of two each member learns the other's update."""
NEIGHBOURS = 32
"""Members that a member of a large group shares masks with, an even number; in a smaller group all others."""
_CURVE = ec.SECP256R1()
_SECRET_BYTES, _PUBLIC_BYTES, _KEY_BYTES = 32, 33, 32
_BLOCK = 16
"""Bytes that the library shares at once."""
_SEED_BYTES = 2 * _BLOCK - 1
"""With the padding of what is shared, of at least one byte, two blocks."""
_MOST_BOX, _MOST_SHARE = 400, 100
_BOX, _SEED_SHARE = 228, 36
"""Bytes of what is boxed, and of a share of a seed."""
_BITS = 62

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class PublicKeys:
    """Reply to `query.keys`: the public keys for masks and for shares."""

    keys: Annotated[list[bytes], Blobs(2, _PUBLIC_BYTES)]


@dataclass(frozen=True)
class Boxes:
    """Reply to `query.shares`: encrypted shares of both secrets for each other member, in their order."""

    boxes: Annotated[list[bytes], Blobs("n", _MOST_BOX)]


@dataclass(frozen=True)
class Masked:
    """Reply to `train` with a `masking`: update, training loss and weight, masked (R + 2,)."""

    masked: Annotated[Words, Tensor("R", dtype="uint64")]


@dataclass(frozen=True)
class Revealed:
    """Reply to `query.unmask`: one share for each member, of its seed where it is alive, else of its secret key."""

    shares: Annotated[list[bytes], Blobs("n", _MOST_SHARE)]


def needed(members: int) -> int:
    """Return how many shares restore a secret: more than half, so that one of each member restores one alone."""
    return members // 2 + 1


def neighbours(place: int, members: int) -> list[int]:
    """Return those members, by their places on a ring, with whom the one at `place` shares masks, and itself."""
    if members <= NEIGHBOURS + 1:
        return list(range(members))
    half = NEIGHBOURS // 2
    return sorted((place + step) % members for step in range(-half, half + 1))


def protocol_bytes(members: int) -> tuple[int, int]:
    """Return the bytes to and from a member of a group in a round where all stay, besides models."""
    count = len(neighbours(0, members))
    boxes = (count - 1) * _BOX
    return 2 * _PUBLIC_BYTES * count + boxes, 2 * _PUBLIC_BYTES + boxes + _SEED_SHARE * count


def new_seed() -> bytes:
    """Return the secret of a member's own mask."""
    return os.urandom(_SEED_BYTES)


def new_secret() -> bytes:
    """Return a secret key."""
    return ec.generate_private_key(_CURVE).private_numbers().private_value.to_bytes(_SECRET_BYTES, "big")


def private_key(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a secret; ValueError where it is none."""
    return ec.derive_private_key(int.from_bytes(secret, "big"), _CURVE)


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key of a private one."""
    return key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)


def agreed(own: ec.EllipticCurvePrivateKey, public: bytes) -> bytes:
    """Return the key that two members have in common; ValueError where `public` is no key."""
    secret = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, public))
    key = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=b"florets key").derive(secret)
    return base64.urlsafe_b64encode(key)


def pairwise_mask(key: bytes, size: int) -> Words:
    """Return the mask of two members with a key in common."""
    return mask(base64.urlsafe_b64decode(key), size)


def mask(seed: bytes, size: int) -> Words:
    """Return the words that a secret expands to: a keystream of AES-256 in counter mode, used once."""
    key = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=b"florets mask").derive(seed)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), "<u8")


def scale_bits(limit: float, weight: float) -> int:
    """Return the binary places that integers may have so that sums of values up to `limit` cannot overflow."""
    return _BITS - math.ceil(math.log2(limit * weight))


def encoded(values: npt.NDArray[np.float64], loss: float, weight: int, bits: int, limit: float) -> Words:
    """Return an update (R,) and its loss, times the weight, and the weight, as integers modulo 2**64."""
    # NaN is not at most anything.
    if not np.abs(values).max(initial=0.0) <= limit or math.isnan(loss) or not weight >= 1:
        raise ValueError("the loss or a value of the update is not finite, or beyond the range that the sum can take")
    if math.log2(limit * weight) + bits > _BITS:
        raise ValueError(f"{kinds.MASKING}: bits={bits} are too many for this client's weight")
    scaled = np.rint(np.ldexp(np.append(values, min(max(loss, 0.0), limit)) * weight, bits))
    return np.append(scaled.astype(np.int64), weight).view(np.uint64)


def decoded(total: Words, bits: int) -> tuple[npt.NDArray[np.float64], float, int]:
    """Return the weighted means of what `encoded` was given, (R,) and the loss, and the weights' sum."""
    words = total.view(np.int64)
    weight = int(words[-1])
    means = np.ldexp(words[:-1].astype(np.float64), -bits) / max(weight, 1)
    return means[:-1], float(means[-1]), weight


def boxed(key: bytes, source: int, target: int, shares: tuple[bytes, bytes]) -> bytes:
    """Return the shares of a seed and of a secret key, encrypted for the member that they go to."""
    head = bytes(source.to_bytes(4, "little") + target.to_bytes(4, "little"))
    return Fernet(key).encrypt(head + len(shares[0]).to_bytes(2, "little") + shares[0] + shares[1])


def unboxed(key: bytes, source: int, target: int, box: bytes) -> tuple[bytes, bytes]:
    """Return the shares in a box; ValueError where it is not from `source` to `target`."""
    try:
        plain = Fernet(key).decrypt(box)
    except InvalidToken:
        plain = b""
    length = int.from_bytes(plain[8:10], "little")
    if plain[:8] != source.to_bytes(4, "little") + target.to_bytes(4, "little") or len(plain) < 10 + length:
        raise ValueError(f"the shares that came from member {source} are not its own, or not for member {target}")
    return plain[10 : 10 + length], plain[10 + length :]


def shares_of(secret: bytes, needed: int, number: int) -> list[bytes]:
    """Return Shamir's shares of a secret, of which `needed` restore it: a number, and a part of each block."""
    padded = pad(secret, _BLOCK)
    blocks = [Shamir.split(needed, number, padded[i : i + _BLOCK], ssss=False) for i in range(0, len(padded), _BLOCK)]
    return [own[0][0].to_bytes(4, "little") + b"".join(part for _, part in own) for own in zip(*blocks, strict=True)]


def joined(shares: list[bytes]) -> bytes | None:
    """Return the secret of enough shares, None where they are of no secret."""
    try:
        starts = range(4, len(shares[0]), _BLOCK)
        blocks = [[(int.from_bytes(share[:4], "little"), share[i : i + _BLOCK]) for share in shares] for i in starts]
        secret: bytes = unpad(b"".join(Shamir.combine(block, ssss=False) for block in blocks), _BLOCK)
        return secret
    except Exception:
        # Shares come from clients: what they make the library raise is as good as a wrong secret.
        return None


def ring(values: Any) -> list[int]:
    """Return a list of members as it came in a message, each once; ValueError for anything else."""
    if not isinstance(values, list) or not all(type(one) is int and one >= 0 for one in values):
        raise ValueError("members are not a list of integers from 0")
    if len(set(values)) != len(values):
        raise ValueError("a member is named twice")
    return values
