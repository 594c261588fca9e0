"""Tokens for HTTP: made with the keys of an account, valid until they expire.

::

    token   base64url of access key "." time at which it expires, in digits "." base64url of mac
    mac     HMAC-SHA256 with the secret key over "dledger token " and the token up to the last "."

Times are in milliseconds since 1970. base64url has no padding (RFC 4648, section 5).
"""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

TOKEN_SIZE_MAX = 400
"""Format: an access key has 128 characters."""

_PURPOSE = b"dledger token "


class TokenError(ValueError):
    """A text is not a token, or not a valid one."""


class Token(NamedTuple):
    """The content of a token. It must not be trusted before :meth:`check`."""

    access_key: str
    expires_ms: int
    signed: bytes
    mac: bytes

    def check(self, secret_key: bytes, now_ms: int) -> None:
        """Raises :class:`TokenError` unless it was made with this key and has not expired."""
        if not hmac.compare_digest(_mac(secret_key, self.signed), self.mac):
            raise TokenError("the token is not of that account")
        if now_ms >= self.expires_ms:
            raise TokenError("the token has expired")


def make_token(access_key: str, secret_key: str, expires_ms: int) -> str:
    """See the module."""
    signed = _text_of(access_key.encode()) + b".%d" % expires_ms
    return (signed + b"." + _text_of(_mac(secret_key.encode(), signed))).decode()


def read_token(text: str) -> Token:
    """Raises :class:`TokenError`."""
    if len(text) > TOKEN_SIZE_MAX or not text.isascii():
        raise TokenError("the text is not a token")
    parts = text.encode().split(b".")
    if len(parts) != 3 or not parts[1].isdigit():
        raise TokenError("the text is not a token")
    try:
        access_key = _bytes_of(parts[0]).decode()
        return Token(access_key, int(parts[1]), parts[0] + b"." + parts[1], _bytes_of(parts[2]))
    except (binascii.Error, UnicodeDecodeError) as error:
        raise TokenError("the text is not a token") from error


def _mac(secret_key: bytes, signed: bytes) -> bytes:
    return hmac.digest(secret_key, _PURPOSE + signed, "sha256")


def _text_of(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _bytes_of(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
