"""TLS on the gRPC port, with the same files as the other ports.

grpcio cannot distinguish TLS and plain connections on one port. With ``tls`` enforcing it uses TLS
itself. With permissive TLS, clients connect to a relay (:mod:`broker.grpc.relay`). Changed
certificates are read again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import grpc

from broker.config.security_config import ENFORCING, PERMISSIVE, SecurityConfig
from broker.config.setting_checks import ConfigError
from broker.security.port_tls import PortTls, port_tls
from broker.system.bounded_file_read import read_bounded
from dledger.wire.tls_contexts import TlsFiles, TlsFilesError, stamps_of

log = logging.getLogger("dledger.tls")

PEM_BYTES_MAX = 1 << 20
"""Format: bytes of a certificate or key file, which has a few kilobytes."""


class GrpcTls(NamedTuple):
    """The TLS of the port; without both fields it has none."""

    credentials: grpc.ServerCredentials | None = None
    """Credentials for a port with TLS only."""
    mixed: PortTls | None = None
    """The TLS of a relay, which accepts both kinds."""


def grpc_tls(security: SecurityConfig, name: str) -> GrpcTls:
    """The TLS by the settings. Raises :class:`~broker.config.setting_checks.ConfigError` with the
    file."""
    if security.tls == ENFORCING:
        return GrpcTls(credentials=_credentials(security, name))
    if security.tls != PERMISSIVE:
        return GrpcTls()
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
    known = [(stamps_of(paths), first)]

    def current() -> grpc.ServerCertificateConfiguration:
        stamps, usable = known[0]
        if stamps != stamps_of(paths):
            try:
                usable = _read(paths)
            except OSError as error:
                log.error(
                    "%s: %s; the old certificate stays in use", error.filename, error.strerror
                )
            known[0] = (stamps_of(paths), usable)
        return usable

    return grpc.dynamic_ssl_server_credentials(first, current)


def _read(paths: tuple[str, str]) -> grpc.ServerCertificateConfiguration:
    key, certificate = (read_bounded(path, PEM_BYTES_MAX) for path in paths)
    return grpc.ssl_server_certificate_configuration([(key, certificate)])
