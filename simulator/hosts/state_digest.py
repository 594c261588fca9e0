"""A digest of a broker's whole state, taken after every entry on every replica.

Most entries change little of it. The rest is compared with a copy, which costs a tenth of packing
it again. It is packed only if it differs. The copy has dicts of its own, with values that nobody
can change.
"""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import blake2b
from operator import attrgetter

import msgpack
from crc32c import crc32c

from broker.state.broker_state import BrokerState
from broker.state.deduplication_window import RecentRequests

DIGEST_BYTES = 8

OFTEN_CHANGED = ("store_timestamp_ms", "requests", "offsets")

_names = tuple(f.name for f in fields(BrokerState) if f.name not in OFTEN_CHANGED)
_rest = attrgetter(*_names)


class StateDigest:
    """Digests of the state of one machine. The state may be a new object each time."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()
        self._copy: BrokerState | None = None
        self._packed = b""
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._packed_offsets = self._packer.pack([])
        self._hashed = blake2b(self._packed_offsets, digest_size=DIGEST_BYTES)

    def of(self, state: BrokerState, beside: tuple[object, ...]) -> bytes:
        """The digest of the state and of ``beside``."""
        same = True
        if self._copy is None or _rest(self._copy) != _rest(state):
            rest = replace(state, store_timestamp_ms=0, requests=RecentRequests(), offsets={})
            self._packed = rest.to_bytes()
            for name in _names:
                table = getattr(state, name)
                if isinstance(table, dict):
                    setattr(rest, name, dict(table))
            self._copy, same = rest, False
        if self._offsets != state.offsets:
            self._offsets = {key: dict(queues) for key, queues in state.offsets.items()}
            self._packed_offsets = self._packer.pack(
                sorted((key, sorted(queues.items())) for key, queues in state.offsets.items())
            )
            same = False
        if not same:
            self._hashed = blake2b(self._packed + self._packed_offsets, digest_size=DIGEST_BYTES)
        requests = state.requests.data
        order = list(state.transactions)  # equal dicts may differ in their order
        changed: bytes = self._packer.pack(
            (state.store_timestamp_ms, len(requests), crc32c(requests), order, beside)
        )
        hashed = self._hashed.copy()
        hashed.update(changed)
        return hashed.digest()
