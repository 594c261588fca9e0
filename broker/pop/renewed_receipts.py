"""Whose a renewed delivery is, and which receipt handle its consumer has: in its nonce.

So the replicated state says both. Any later leader goes on to renew it, and takes the first handle.
From the highest bit the nonce of a delivery that is renewed (:mod:`broker.pop.auto_renewal`) has::

    30  hash of the client's id
     1  renewed
    32  at first those of the reception; once renewed a hash of the first receipt

Other nonces are chance: once in 2^30 one names a given client, and once in 2^32 a receipt that is
not its own.
"""

from __future__ import annotations

from hashlib import blake2b

from broker.pop.receipt_handle import ReceiptHandle, tag_of
from broker.state.pop_queues import PopDelivery

_LOW_BITS = (1 << 32) - 1
_RENEWED = 1 << 32
_CLIENT_SHIFT = 33


def client_hash(client_id: str) -> int:
    """30 bits of a client's id."""
    return _hash(client_id) >> 2


def renewable(nonce: int, client_id: str) -> int:
    """The nonce of a reception that is renewed, made of one that is not."""
    return client_hash(client_id) << _CLIENT_SHIFT | (nonce & _LOW_BITS or 1)


def owner_of(nonce: int) -> int:
    """The :func:`client_hash` of whom a reception belongs to, if it is renewed at all."""
    return nonce >> _CLIENT_SHIFT


def renewed_nonce(delivery: PopDelivery) -> int:
    """The nonce of a delivery from its first renewal on."""
    nonce = delivery.nonce
    if nonce & _RENEWED:
        return nonce
    first = _receipt_hash(tag_of(nonce), delivery.visible_ms)
    return owner_of(nonce) << _CLIENT_SHIFT | _RENEWED | first


def is_receipt_of(handle: ReceiptHandle, delivery: PopDelivery) -> bool:
    """Whether a handle names the delivery: its own handle, or the first one of a renewed one."""
    nonce = delivery.nonce
    if tag_of(nonce) == handle.tag and delivery.visible_ms == handle.visible_ms:
        return True
    return bool(nonce & _RENEWED) and nonce & _LOW_BITS == _receipt_hash(
        handle.tag, handle.visible_ms
    )


def _receipt_hash(tag: int, visible_ms: int) -> int:
    return _hash(f"{tag} {visible_ms}")


def _hash(text: str) -> int:
    digest = blake2b(text.encode(errors="replace"), digest_size=4).digest()
    return int.from_bytes(digest, "big")
