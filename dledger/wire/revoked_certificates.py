"""Revoked certificates: signed by the authority and not expired, but no longer valid.

A file lists their serial numbers, in hexadecimal digits, one a line; ``#`` begins a comment. It is
read again when it has changed. Rejected: lists that an authority signs (RFC 5280). They expire, and
each trusted authority needs one, so a list that was forgotten would part a whole group.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 1 << 20


class RevokedCertificates:
    """Those of one file; none if there was no file so far.

    A file that cannot be used leaves what was read before in use. So does a file that is gone: a
    deployment that loses it must not let lost nodes in. An empty file lifts all revocations. Call
    :meth:`read` once before, so that there is something to fall back on.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._serials: frozenset[int] = frozenset()
        self._stamp: tuple[int, int, int] | None = None
        """Of the file as it was read last; None if there was none."""
        self._problem = ""
        """Why the file could not be used at the last look. It is logged once."""

    def __contains__(self, serial: str) -> bool:
        """Whether the certificate with that number, in hexadecimal digits, counts no more."""
        problem = ""
        try:
            self.read()
        except OSError as error:
            problem = f"{self._path}: {error.strerror}"
        except ValueError as error:
            problem = str(error)
        if problem and problem != self._problem:
            log.error("%s; what was read before stays in use", problem)
        self._problem = problem
        return int(serial, 16) in self._serials

    def read(self) -> None:
        """Reads the file, if it has changed.

        Raises ``OSError`` if it cannot be read or is gone, and ``ValueError``, which names it, if
        it is too long or no list of serial numbers.
        """
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            if self._serials:
                raise
            return
        stamp = found.st_mtime_ns, found.st_ino, found.st_size
        if stamp == self._stamp:
            return
        with open(self._path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        self._stamp = stamp
        if len(data) > FILE_BYTES_MAX:
            raise ValueError(f"{self._path}: it is longer than {FILE_BYTES_MAX} bytes")
        try:
            self._serials = read_serials(data.decode())
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None
        log.info("%s: %d certificates are revoked", self._path, len(self._serials))


def read_serials(text: str) -> frozenset[int]:
    """Of the text of a file. Raises ``ValueError``, which names the line."""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        told = line.partition("#")[0].strip()
        if told:
            try:
                found.add(int(told, 16))
            except ValueError:
                raise ValueError(f"line {number} is no serial number") from None
    return frozenset(found)
