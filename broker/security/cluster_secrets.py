"""The secrets of the servers of a cluster: the cluster secret, and the first admin.

With the secret, servers prove to each other that they belong to the cluster. A request is signed
like any other (:mod:`broker.security.signature`), with the access key ``dledger-cluster`` and a key
that is derived from the secret.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.security.credentials import (
    PROFILE_SIZE_MAX,
    Credentials,
    CredentialsError,
    read_profile,
)
from broker.security.signature import ACCESS_KEY, is_signed_by
from broker.system.bounded_file_read import read_bounded

CLUSTER_ACCESS_KEY = "dledger-cluster"
CLUSTER_REQUESTS = b"dledger cluster requests"
"""The purpose of the key that signs requests."""

_SECRET = re.compile(r"[0-9a-fA-F]{64}")


class ClusterSecretError(ValueError):
    """A file has no cluster secret."""


class SealedKeyError(ValueError):
    """No cluster secret of this node opens a sealed key (:mod:`broker.security.key_sealing`)."""


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


@dataclass(frozen=True, slots=True)
class ClusterSecrets:
    """``secrets`` have 32 bytes each. The first is used, all are accepted."""

    secrets: tuple[bytes, ...] = field(repr=False)
    admin: Credentials | None = None
    """The account of ``admin.toml``, if this server has that file."""

    def credentials(self) -> Credentials:
        """The keys with which this server signs requests to other servers."""
        return _credentials(self.secrets[0])

    def signs(self, ext: Mapping[str, object], body: bytes) -> bool:
        """Whether a request is signed with a cluster secret."""
        return ext.get(ACCESS_KEY) == CLUSTER_ACCESS_KEY and any(
            is_signed_by(_credentials(each).secret_key.encode(), ext, body) for each in self.secrets
        )


def read_cluster_secrets(secret_path: str, admin_path: str) -> ClusterSecrets:
    """Reads the two files; the second may be missing.

    Raises :class:`ClusterSecretError` and
    :class:`~broker.security.credentials.CredentialsError`, with the name of the file.
    """
    try:
        secrets = parse_cluster_secrets(read_bounded(secret_path, PROFILE_SIZE_MAX).decode())
    except OSError as error:
        raise ClusterSecretError(f"{secret_path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ClusterSecretError(f"{secret_path}: {error}") from None
    admin = read_profile(admin_path).credentials if os.path.exists(admin_path) else None
    if admin is not None and admin.access_key == CLUSTER_ACCESS_KEY:
        raise CredentialsError(f"{admin_path}: {CLUSTER_ACCESS_KEY} cannot be an account")
    return ClusterSecrets(secrets, admin)


def _credentials(secret: bytes) -> Credentials:
    return Credentials(CLUSTER_ACCESS_KEY, derived_key(secret, CLUSTER_REQUESTS).hex())
