"""What the servers of a cluster know that others do not: its secret, and the first admin.

By the secret, servers prove to each other that they belong to the cluster. A request is signed as
any other (:mod:`broker.security.signature`): by the access key ``dledger-cluster``, and a key that
is made of the secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.security.credentials import (
    PROFILE_SIZE_MAX,
    Credentials,
    CredentialsError,
    read_profile,
)
from broker.security.key_sealing import (
    CLUSTER_REQUESTS,
    ClusterSecretError,
    derived_key,
    parse_cluster_secrets,
)
from broker.security.signature import ACCESS_KEY, is_signed_by
from broker.system.bounded_file_read import read_bounded

CLUSTER_ACCESS_KEY = "dledger-cluster"


@dataclass(frozen=True, slots=True)
class ClusterSecrets:
    """``secrets`` are 32 bytes each. The first is used, all are believed."""

    secrets: tuple[bytes, ...] = field(repr=False)
    admin: Credentials | None = None
    """The account of ``admin.toml``, where this server has that file."""

    def credentials(self) -> Credentials:
        """By which this server signs what it asks of another."""
        return _credentials(self.secrets[0])

    def signs(self, ext: Mapping[str, object], body: bytes) -> bool:
        """Whether a request is signed by the cluster."""
        return ext.get(ACCESS_KEY) == CLUSTER_ACCESS_KEY and any(
            is_signed_by(_credentials(each).secret_key.encode(), ext, body) for each in self.secrets
        )


def read_cluster_secrets(secret_path: str, admin_path: str) -> ClusterSecrets:
    """Reads the two files, of which the second may be absent.

    Raises :class:`~broker.security.key_sealing.ClusterSecretError` and
    :class:`~broker.security.credentials.CredentialsError`, which name the file.
    """
    try:
        secrets = parse_cluster_secrets(read_bounded(secret_path, PROFILE_SIZE_MAX).decode())
    except OSError as error:
        raise ClusterSecretError(f"{secret_path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ClusterSecretError(f"{secret_path}: {error}") from None
    admin = read_profile(admin_path).credentials if os.path.exists(admin_path) else None
    if admin is not None and admin.access_key == CLUSTER_ACCESS_KEY:
        raise CredentialsError(f"{admin_path}: {CLUSTER_ACCESS_KEY} is no name of an account")
    return ClusterSecrets(secrets, admin)


def _credentials(secret: bytes) -> Credentials:
    return Credentials(CLUSTER_ACCESS_KEY, derived_key(secret, CLUSTER_REQUESTS).hex())
