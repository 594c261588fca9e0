"""A process's certificate, and the authorities that it trusts, as contexts for TLS.

The files are read again when they have changed, so certificates are replaced without a restart.
Connections that stand are not touched. Files that cannot be used, as while they are replaced, leave
what was read before in force.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from dledger.errors import DLedgerError

log = logging.getLogger(__name__)


class TlsFilesError(DLedgerError):
    """Certificates that cannot be used: one line that names the file."""


class TlsFiles(NamedTuple):
    """PEM files: the authorities that are trusted, the own certificate, and its key."""

    ca: str
    certificate: str
    key: str


_Stamps: TypeAlias = tuple[tuple[int, int], ...]


def stamps_of(paths: Iterable[str]) -> _Stamps:
    """Times and inodes of files; zeros for one that is not there."""
    stamps = []
    for path in paths:
        try:
            found = os.stat(path)
            stamps.append((found.st_mtime_ns, found.st_ino))
        except OSError:
            stamps.append((0, 0))
    return tuple(stamps)


class _Contexts(NamedTuple):
    stamps: _Stamps
    server: ssl.SSLContext
    client: ssl.SSLContext


class TlsContexts:
    """Contexts for TLS 1.3, or from ``minimum`` on, in which both sides show a certificate.

    With ``clients_optional`` the accepting side also takes who shows none. Raises
    :class:`TlsFilesError` if the files cannot be used at the start.
    """

    def __init__(
        self,
        files: TlsFiles,
        *,
        clients_optional: bool = False,
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        self._files = files
        self._clients_optional = clients_optional
        self._minimum = minimum
        self._refused: _Stamps = ()  # of files that could not be used
        self._paths = (files.ca, files.certificate, files.key)
        self._contexts = self._read(stamps_of(self._paths))

    def server_context(self) -> ssl.SSLContext:
        """For a connection that is accepted now."""
        return self._fresh().server

    def client_context(self) -> ssl.SSLContext:
        """For a connection that is dialled now. Whose the certificate is, remains to be checked."""
        return self._fresh().client

    def _fresh(self) -> _Contexts:
        stamps = stamps_of(self._paths)
        if stamps not in (self._contexts.stamps, self._refused):
            try:
                self._contexts = self._read(stamps)
                log.info("%s was read again", self._files.certificate)
            except TlsFilesError as error:
                self._refused = stamps
                log.error("%s; what was read before stays in use", error)
        return self._contexts

    def _read(self, stamps: _Stamps) -> _Contexts:
        server = self._context(ssl.PROTOCOL_TLS_SERVER)
        server.verify_mode = ssl.CERT_OPTIONAL if self._clients_optional else ssl.CERT_REQUIRED
        server.num_tickets = 0  # nobody resumes: each connection shows its certificate
        return _Contexts(stamps, server, self._context(ssl.PROTOCOL_TLS_CLIENT))

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = self._minimum
        context.check_hostname = False  # the certificate names a node, not where it is
        files = self._files
        path = files.ca
        try:
            context.load_verify_locations(path)
            path = files.certificate
            # A password would be asked for at the terminal.
            context.load_cert_chain(path, files.key, password="")
        except ssl.SSLError as error:
            raise TlsFilesError(f"{path} cannot be used: {error.reason or error}") from None
        except OSError as error:  # it does not say of which file
            missing = [each for each in (path, files.key) if not os.access(each, os.R_OK)]
            raise TlsFilesError(f"{(missing or [path])[0]}: {error.strerror}") from None
        return context
