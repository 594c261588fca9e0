"""Certificates for tests. Each is made once in a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from broker.certificates.certificate_authority import CertificateAuthority, pem_of
from dledger.wire.peer_identity import PeerIdentity
from dledger.wire.tls_contexts import TlsFiles


@cache
def authority(name: str) -> CertificateAuthority:
    return CertificateAuthority.create(name)


@cache
def issued(by: str, identity: PeerIdentity, days: int) -> tuple[bytes, bytes]:
    return authority(by).issue(identity, ["127.0.0.1"], days)


def write_tls_files(
    directory: Path,
    identity: PeerIdentity,
    *,
    by: str = "ours",
    trusts: str = "ours",
    days: int = 9,
) -> TlsFiles:
    """Writes the files of a peer with a certificate for ``identity``."""
    directory.mkdir(parents=True, exist_ok=True)
    certificate, key = issued(by, identity, days)
    paths = [directory / name for name in ("ca.pem", "node.pem", "node-key.pem")]
    for path, data in zip(
        paths, (pem_of(authority(trusts).certificate), certificate, key), strict=True
    ):
        path.write_bytes(data)
    return TlsFiles(*map(str, paths))
