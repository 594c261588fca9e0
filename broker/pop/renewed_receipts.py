"""The nonces of renewed deliveries: they hold the owner, and whether the delivery was renewed.

So the replicated state has both: a later leader continues the renewals, and accepts the first
handle. From the highest bit on, the nonce of a delivery that may be renewed
(:mod:`broker.pop.auto_renewal`) has::

    30  hash of the client's id
     1  renewed
     1  renewed by an older program that did not know of an answer; before, a bit left to chance
    31  the bits of the receive request, which identify its attempt and its receipt handle

A renewal changes only the two bits. So the first handle of a renewed delivery is recognised by its
tag: 31 bits, without a time. If a client receives such a message again by the same attempt id, its
first handle is valid again, from the next renewal on. Other nonces are random, and one in 2^30
names a given client. They never have the bit "renewed".
"""

from __future__ import annotations

from hashlib import blake2b

from broker.pop.pop_request import PopRequest
from broker.pop.receipt_handle import ReceiptHandle, tag_of
from broker.state.pop_queues import PopDelivery

_UNANSWERED = 1 << 31
_RENEWED = 1 << 32
_CLIENT_SHIFT = 33


def nonce_of(request: PopRequest) -> int:
    """The nonce of a request with an attempt id; 0 without one."""
    if not request.attempt_id:
        return 0
    told = f"{request.client_id}\0{request.attempt_id}".encode(errors="replace")
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big") >> 1 or 1


def client_hash(client_id: str) -> int:
    """30 bits of a client's id."""
    digest = blake2b(client_id.encode(errors="replace"), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 2


def renewable(nonce: int, client_id: str) -> int:
    """The nonce of a delivery that may be renewed, made of a random one."""
    return client_hash(client_id) << _CLIENT_SHIFT | (tag_of(nonce) or 1)


def not_renewable(nonce: int) -> int:
    """The nonce of a delivery that is never renewed, made of a random one."""
    return nonce & ~_RENEWED or 1


def owner_of(nonce: int) -> int:
    """The :func:`client_hash` of the owner, if the delivery may be renewed."""
    return nonce >> _CLIENT_SHIFT


def renewed(nonce: int) -> int:
    """The nonce of a delivery after a renewal."""
    return nonce & ~_UNANSWERED | _RENEWED


def was_answered(nonce: int) -> bool:
    """Whether a renewal says that the consumer has the message."""
    return nonce & (_RENEWED | _UNANSWERED) == _RENEWED


def nonces_of(nonce: int) -> set[int]:
    """All nonces that a delivery may have, made of one of them."""
    bare = nonce & ~(_RENEWED | _UNANSWERED)
    return {bare, bare | _UNANSWERED, bare | _RENEWED, bare | _RENEWED | _UNANSWERED}


def is_receipt_of(handle: ReceiptHandle, delivery: PopDelivery) -> bool:
    """Whether a handle names the delivery: its present handle, or the first handle of a renewed
    delivery."""
    nonce = delivery.nonce
    return tag_of(nonce) == handle.tag and (
        bool(nonce & _RENEWED) or delivery.visible_ms == handle.visible_ms
    )
