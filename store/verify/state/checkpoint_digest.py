"""What replicas must have alike in their checkpoints of one entry, as numbers to be compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b

from store.state.checkpoint import Checkpoint

DIGEST_SIZE = 16


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The state and the members after entry ``index``, which has chain CRC ``chain``.

    Where terms began is left out: of what has expired it may be there or not.
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
    """Equal for configurations that say the same: what is empty may be there or left out."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(found, dict):
        return data
    said = {name: value for name, value in found.items() if value}
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
