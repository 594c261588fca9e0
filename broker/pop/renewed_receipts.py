"""Whose a renewed delivery is, and that it is renewed: in its nonce.

So the replicated state says both. Any later leader goes on to renew it, and takes the first handle.
From the highest bit the nonce of a delivery that may be renewed (:mod:`broker.pop.auto_renewal`)
has::

    30  hash of the client's id
     1  renewed
    32  those of the reception, by which its attempt and its receipt handle are found

Renewing changes the one bit alone. So the first handle of a renewed delivery is known by its tag:
31 bits, without a time. If a client receives such a message once more by the same attempt id, its
handle of the first time is good again, from the next renewal on. Other nonces are chance, and once
in 2^30 one names a given client. They are never marked as renewed.
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
    digest = blake2b(client_id.encode(errors="replace"), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 2


def renewable(nonce: int, client_id: str) -> int:
    """The nonce of a reception that is renewed, made of one that is not."""
    return client_hash(client_id) << _CLIENT_SHIFT | (nonce & _LOW_BITS or 1)


def not_renewable(nonce: int) -> int:
    """The nonce of a reception that is not renewed, made of chance."""
    return nonce & ~_RENEWED or 1


def owner_of(nonce: int) -> int:
    """The :func:`client_hash` of whom a reception belongs to, if it is renewed at all."""
    return nonce >> _CLIENT_SHIFT


def renewed(nonce: int) -> int:
    """The nonce of a delivery from its first renewal on."""
    return nonce | _RENEWED


def is_receipt_of(handle: ReceiptHandle, delivery: PopDelivery) -> bool:
    """Whether a handle names the delivery: its own handle, or the first one of a renewed one."""
    nonce = delivery.nonce
    return tag_of(nonce) == handle.tag and (
        bool(nonce & _RENEWED) or delivery.visible_ms == handle.visible_ms
    )
