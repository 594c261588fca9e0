"""TLS on the gRPC port, by the files that the other ports have theirs from.

grpcio cannot tell TLS from plain connections on one port. It speaks TLS itself where ``tls`` is
enforcing; where that is permissive a relay (:mod:`broker.grpc.relay`) stands before it.
Certificates that have changed are read again.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import grpc

from broker.config.security_config import ENFORCING, PERMISSIVE, SecurityConfig
from broker.config.setting_checks import ConfigError
from broker.security.port_tls import PortTls, port_tls
from broker.system.bounded_file_read import read_bounded
from dledger.wire.tls_contexts import TlsFiles, TlsFilesError

log = logging.getLogger("dledger.tls")

PEM_BYTES_MAX = 1 << 20
"""Format: certificates and keys have some kilobytes."""


class GrpcTls(NamedTuple):
    """How the port speaks TLS; with neither it speaks none."""

    credentials: grpc.ServerCredentials | None = None
    """It takes TLS alone."""
    mixed: PortTls | None = None
    """It takes both kinds."""


NO_TLS = GrpcTls()


def grpc_tls(security: SecurityConfig, name: str) -> GrpcTls:
    """Raises :class:`~broker.config.setting_checks.ConfigError`, which names the file."""
    if security.tls == ENFORCING:
        return GrpcTls(credentials=_credentials(security, name))
    if security.tls != PERMISSIVE:
        return NO_TLS
    files = security.files
    own = TlsFiles(files.ca, files.certificate(name), files.key(name))
    try:
        return GrpcTls(mixed=port_tls(own, plain=True, application_protocols=("h2",)))
    except TlsFilesError as error:
        raise ConfigError(str(error)) from error


def _credentials(security: SecurityConfig, name: str) -> grpc.ServerCredentials:
    paths = (security.files.key(name), security.files.certificate(name))
    try:
        first = _read(paths)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    known = [(_stamps(paths), first)]

    def current() -> grpc.ServerCertificateConfiguration:
        stamps, usable = known[0]
        if stamps != _stamps(paths):
            try:
                usable = _read(paths)
            except OSError as error:
                log.error("%s: %s; what was read stays in use", error.filename, error.strerror)
            known[0] = (_stamps(paths), usable)
        return usable

    return grpc.dynamic_ssl_server_credentials(first, current)


def _read(paths: tuple[str, str]) -> grpc.ServerCertificateConfiguration:
    key, certificate = (read_bounded(path, PEM_BYTES_MAX) for path in paths)
    return grpc.ssl_server_certificate_configuration([(key, certificate)])


def _stamps(paths: tuple[str, str]) -> tuple[tuple[int, int], ...]:
    stamps = []
    for path in paths:
        try:
            found = os.stat(path)
            stamps.append((found.st_mtime_ns, found.st_ino))
        except OSError:
            stamps.append((0, 0))
    return tuple(stamps)
