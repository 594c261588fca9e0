"""Secret keys at rest.

Checking an HMAC needs the key itself, not only a hash of it. So the log, checkpoints and snapshots
contain the key encrypted. Layout of a sealed key::

    u8    1
    12    nonce, random
    ..    AES-256-GCM of the key as UTF-8, and its tag of 16 bytes

The AES key is HMAC-SHA256 of the cluster secret over ``dledger account keys``. The access key is
authenticated too, so that the sealed key of one account cannot be used for another.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED_KEY = b"dledger account keys"
CLUSTER_REQUESTS = b"dledger cluster requests"
"""The purposes of keys that are derived from the cluster secret."""

_VERSION = 1
_NONCE_SIZE = 12
_SECRET = re.compile(r"[0-9a-fA-F]{64}")


class ClusterSecretError(ValueError):
    """A file has no cluster secret."""


class SealedKeyError(ValueError):
    """No cluster secret of this node opens a sealed key."""


def parse_cluster_secrets(text: str) -> tuple[bytes, ...]:
    """The secrets in a file: 64 hexadecimal digits in each line. The first seals and signs; all
    open and check. So secrets can be replaced node by node. Raises :class:`ClusterSecretError`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or not all(map(_SECRET.fullmatch, lines)):
        raise ClusterSecretError("it must have 64 hexadecimal digits in each line")
    return tuple(map(bytes.fromhex, lines))


def derived_key(secret: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes for one purpose. It reveals neither the secret nor the keys for other
    purposes."""
    return hmac.digest(secret, purpose, "sha256")


class KeySealer:
    """Seals and opens secret keys with the secrets of a cluster."""

    def __init__(
        self, secrets: Sequence[bytes], random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        """The first secret seals, all open. ``random_bytes`` gives nonces, which must never
        repeat."""
        self._random_bytes = random_bytes
        self._ciphers = [AESGCM(derived_key(each, SEALED_KEY)) for each in secrets]

    def seal(self, access_key: str, secret_key: str) -> bytes:
        """See the module."""
        nonce = self._random_bytes(_NONCE_SIZE)
        sealed = self._ciphers[0].encrypt(nonce, secret_key.encode(), access_key.encode())
        return bytes([_VERSION]) + nonce + sealed

    def reseal(self, access_key: str, sealed: bytes) -> bytes:
        """The same key, sealed with the first secret. Raises :class:`SealedKeyError`."""
        return self.seal(access_key, self.open(access_key, sealed).decode())

    def open(self, access_key: str, sealed: bytes) -> bytes:
        """The secret key. Raises :class:`SealedKeyError`."""
        if sealed[:1] == bytes([_VERSION]) and len(sealed) > _NONCE_SIZE:
            nonce, encrypted = sealed[1 : 1 + _NONCE_SIZE], sealed[1 + _NONCE_SIZE :]
            for cipher in self._ciphers:
                try:
                    return cipher.decrypt(nonce, encrypted, access_key.encode())
                except InvalidTag:
                    continue
        raise SealedKeyError(f"the key of {access_key} is sealed with another cluster's secret")
