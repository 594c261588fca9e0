"""The security directory of a cluster: makes, extends, renews and checks its files.

Existing files are not replaced, except certificates that are renewed. Each file is complete or
missing at any moment; secret files are readable only by their owner.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from broker.certificates.certificate_authority import (
    AuthorityError,
    CertificateAuthority,
    key_pem_of,
    pem_of,
)
from broker.config.security_config import SecurityFiles
from broker.system.bounded_file_read import read_bounded
from dledger.wire.peer_identity import SCHEME, PeerIdentity
from dledger.wire.revoked_certificates import RevokedCertificates, read_serials
from store.quoting import shortened

ADMIN_ACCESS_KEY = "dledger-admin"
PEM_BYTES_MAX = 1 << 20
"""Format: bytes of a certificate or key file, which has a few kilobytes."""
SECRET_BYTES = 32
EXPIRES_SOON_DAYS = 30


class SecurityDirectoryError(Exception):
    """A directory that cannot be made or extended: one line with the file."""


@dataclass(frozen=True, slots=True)
class Made:
    """The names of written files, and of existing files that were kept."""

    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def init_directory(
    files: SecurityFiles,
    cluster: str,
    hosts: Mapping[PeerIdentity, Sequence[str]],
    *,
    days: int,
    renew: bool,
) -> Made:
    """Makes missing files: authority, cluster secret, the first admin's profile, and certificates
    of ``days`` for the identities in ``hosts``, with their hosts.

    Raises :class:`SecurityDirectoryError`.
    """
    made = Made()
    try:
        os.makedirs(files.directory, mode=0o700, exist_ok=True)
        authority = _authority(files, cluster, made)
        secret = secrets.token_hex(SECRET_BYTES)
        _write_missing(files.cluster_secret, f"{secret}\n".encode(), made)
        _write_missing(files.admin_profile, _profile(files).encode(), made)
        for identity, listens in hosts.items():
            _certify(files, authority, identity, listens, made, days=days, renew=renew)
    except OSError as error:
        where = error.filename or files.directory
        raise SecurityDirectoryError(f"{where}: {error.strerror}") from error
    return made


def revoke(files: SecurityFiles, names: Sequence[str], now: datetime) -> list[str]:
    """Revokes the certificates of nodes, ``GROUP/NODE``. Returns their serial numbers; a repeated
    call lists them only once.

    Raises :class:`SecurityDirectoryError`.
    """
    try:
        told = read_bounded(files.revoked, PEM_BYTES_MAX).decode()
        known = set(read_serials(told))
    except FileNotFoundError:
        told, known = "", set()
    except (OSError, ValueError) as error:
        raise SecurityDirectoryError(f"{files.revoked}: {shortened(error)}") from None
    found = []
    for name in names:
        path = files.certificate(name)
        try:
            certificate = x509.load_pem_x509_certificates(read_bounded(path, PEM_BYTES_MAX))[0]
        except OSError as error:
            raise SecurityDirectoryError(f"{path}: {error.strerror}") from None
        except (ValueError, IndexError) as error:
            raise SecurityDirectoryError(f"{path}: {shortened(error)}") from None
        found.append(f"{certificate.serial_number:X}")
        if certificate.serial_number not in known:
            known.add(certificate.serial_number)
            between = "" if not told or told.endswith("\n") else "\n"
            told += f"{between}{found[-1]}  # {name}, {now:%Y-%m-%d}\n"
    try:
        _write(files.revoked, told.encode(), Made())
    except OSError as error:
        raise SecurityDirectoryError(f"{files.revoked}: {error.strerror}") from error
    return found


def _profile(files: SecurityFiles) -> str:
    return (
        "# The first admin. Use it with --profile FILE or $DLEDGER_PROFILE.\n"
        f'access_key = "{ADMIN_ACCESS_KEY}"\n'
        f'secret_key = "{secrets.token_urlsafe(SECRET_BYTES)}"\n'
        f'ca = "{os.path.basename(files.ca)}"\n'
    )


def _authority(files: SecurityFiles, cluster: str, made: Made) -> CertificateAuthority:
    if os.path.exists(files.ca):
        try:
            certificate, key = (read_bounded(p, PEM_BYTES_MAX) for p in (files.ca, files.ca_key))
            authority = CertificateAuthority.load(certificate, key)
        except AuthorityError as error:
            raise SecurityDirectoryError(f"{files.ca}: {error}") from None
        if not authority.is_of(cluster):
            raise SecurityDirectoryError(f"{files.ca}: is of another cluster than {cluster}")
        made.kept.extend(map(os.path.basename, (files.ca, files.ca_key)))
        return authority
    authority = CertificateAuthority.create(cluster)
    _write(files.ca_key, key_pem_of(authority.key), made, secret=True)
    _write(files.ca, pem_of(authority.certificate), made)
    return authority


def _certify(
    files: SecurityFiles,
    authority: CertificateAuthority,
    identity: PeerIdentity,
    hosts: Sequence[str],
    made: Made,
    *,
    days: int,
    renew: bool,
) -> None:
    name = "/".join(filter(None, identity[1:]))
    certificate, key = files.certificate(name), files.key(name)
    if os.path.exists(certificate) and not renew:
        made.kept.append(os.path.basename(certificate))
        return
    certificate_pem, key_pem = authority.issue(identity, hosts, days)
    _write(key, key_pem, made, secret=True)
    _write(certificate, certificate_pem, made)


def _write_missing(path: str, data: bytes, made: Made) -> None:
    """Writes a secret, unless the file exists."""
    if os.path.exists(path):
        made.kept.append(os.path.basename(path))
    else:
        _write(path, data, made, secret=True)


def _write(path: str, data: bytes, made: Made, *, secret: bool = False) -> None:
    new = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(new)  # left by an interrupted run
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    os.replace(new, path)
    made.written.append(os.path.basename(path))


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """One certificate of a directory. ``problems`` are texts for people."""

    file: str
    identity: str
    hosts: list[str]
    expires: str
    days_left: int
    problems: list[str]


def look_at(files: SecurityFiles, now: datetime) -> tuple[list[CertificateReport], list[str]]:
    """The certificates, and the problems of the other files.

    Raises :class:`SecurityDirectoryError` if there is no authority.
    """
    try:
        trusted = x509.load_pem_x509_certificates(read_bounded(files.ca, PEM_BYTES_MAX))
        names = sorted(os.listdir(files.directory))
    except OSError as error:
        raise SecurityDirectoryError(f"{files.ca}: {error.strerror}") from error
    except ValueError as error:
        raise SecurityDirectoryError(f"{files.ca}: {shortened(error)}") from None
    keys = {name for name in names if name.endswith("-key.pem")}
    reports = [
        _report(files, name, trusted, now)
        for name in names
        if name.endswith(".pem") and name not in keys
    ]
    secret = [*keys, *map(os.path.basename, (files.cluster_secret, files.admin_profile))]
    problems = [
        f"{name}: others than its owner may read it"
        for name in secret
        if name in names
        and stat.S_IMODE(os.stat(os.path.join(files.directory, name)).st_mode) & 0o077
    ]
    return reports, problems


def _report(
    files: SecurityFiles, name: str, trusted: list[x509.Certificate], now: datetime
) -> CertificateReport:
    path = os.path.join(files.directory, name)
    try:
        certificate = x509.load_pem_x509_certificates(read_bounded(path, PEM_BYTES_MAX))[0]
    except (OSError, ValueError, IndexError) as error:
        return CertificateReport(name, "", [], "", 0, [f"cannot be read: {shortened(error)}"])
    names = _alternative_names(certificate)
    identity = next((each for each in names if each.startswith(SCHEME)), "")
    expires = certificate.not_valid_after_utc
    days_left = (expires - now).days
    problems = []
    if days_left < EXPIRES_SOON_DAYS:
        problems.append("has expired" if expires <= now else f"expires in {days_left} days")
    if path != files.ca:
        if f"{certificate.serial_number:X}" in RevokedCertificates(files.revoked):
            problems.append("is revoked")
        if not identity:
            problems.append("does not name a node")
        if not any(_is_issued_by(certificate, each) for each in trusted):
            problems.append("is not signed by an authority in ca.pem")
        if not _fits(certificate, path.removesuffix(".pem") + "-key.pem"):
            problems.append("has no matching key")
    hosts = [each for each in names if not each.startswith(SCHEME)]
    shown = expires.astimezone(UTC).strftime("%Y-%m-%d")
    return CertificateReport(name, identity or "authority", hosts, shown, days_left, problems)


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in found.value]


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _fits(certificate: x509.Certificate, key_path: str) -> bool:
    try:
        key = serialization.load_pem_private_key(read_bounded(key_path, PEM_BYTES_MAX), None)
    except (OSError, ValueError, TypeError):
        return False
    return key.public_key() == certificate.public_key()
