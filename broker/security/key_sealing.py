"""Secret keys at rest.

Checking an HMAC needs the key itself, not only a hash of it. So the log, checkpoints and snapshots
contain the key encrypted. Layout of a sealed key::

    u8    1
    12    nonce, random
    ..    AES-256-GCM of the key as UTF-8, and its tag of 16 bytes

The AES key is HMAC-SHA256 of the cluster secret over ``dledger account keys``. The access key is
authenticated too, so that the sealed key of one account cannot be used for another.

Only a server with access control imports this module, and with it the library of ciphers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from broker.security.cluster_secrets import SealedKeyError, derived_key

SEALED_KEY = b"dledger account keys"
"""The purpose of the derived key."""

_VERSION = 1
_NONCE_SIZE = 12


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
        """The same key, sealed with the first secret. Raises
        :class:`~broker.security.cluster_secrets.SealedKeyError`."""
        return self.seal(access_key, self.open(access_key, sealed).decode())

    def open(self, access_key: str, sealed: bytes) -> bytes:
        """The secret key. Raises :class:`~broker.security.cluster_secrets.SealedKeyError`."""
        if sealed[:1] == bytes([_VERSION]) and len(sealed) > _NONCE_SIZE:
            nonce, encrypted = sealed[1 : 1 + _NONCE_SIZE], sealed[1 + _NONCE_SIZE :]
            for cipher in self._ciphers:
                try:
                    return cipher.decrypt(nonce, encrypted, access_key.encode())
                except InvalidTag:
                    continue
        raise SealedKeyError(f"the key of {access_key} is sealed with another cluster's secret")
