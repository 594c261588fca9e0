"""Digests of checkpoints: equal in all replicas after the same entry."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b

from store.state.checkpoint import Checkpoint

DIGEST_SIZE = 16


@dataclass(frozen=True, slots=True)
class StateDigest:
    """Digest of state and members after entry ``index`` with chain CRC ``chain``.

    Term starts are not included, because those of expired entries may be left out.
    """

    index: int
    chain: int
    digest: bytes
    path: str

    @staticmethod
    def of(checkpoint: Checkpoint, path: str) -> StateDigest:
        digest = blake2b(checkpoint.state, digest_size=DIGEST_SIZE)
        digest.update(b"members" + canonical_configuration(checkpoint.configuration))
        return StateDigest(checkpoint.index, checkpoint.chain_crc, digest.digest(), path)


def canonical_configuration(data: bytes) -> bytes:
    """Equal bytes for equal configurations. Empty fields may be left out."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(found, dict):
        return data
    said = {name: value for name, value in found.items() if value}
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
