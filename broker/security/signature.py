"""RocketMQ's signature of a request (``AclUtils``, ``AclClientRPCHook`` of 4.x).

The signed bytes are the values of all ext fields except ``Signature``, in ascending order of their
names, as UTF-8 without separators, followed by the body. The signature is the base64 of HMAC-SHA1.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence

from store.io.filesystem import Bytes

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
ON_BEHALF = "onBehalf"
"""This project's own: a server asks for somebody else, so the server's address says nothing about
who asks."""

CALLER_FIELDS = frozenset((ACCESS_KEY, SIGNATURE, "SecurityToken", ON_BEHALF))
"""The fields that say who asks."""

UNSIGNED = frozenset((SIGNATURE, "_UNIQUE_KEY_QUERY"))
"""Fields that are not signed. Clients add the second after signing."""


def signed_text(ext: Mapping[str, object]) -> str:
    """The signed text of the ext fields. Numbers and booleans are written as in Java, and null is
    empty: ali-ons leaves it out."""
    return "".join(
        [
            value if type(value) is str else _java_text(value)
            for name, value in sorted(ext.items())
            if name not in UNSIGNED
        ]
    )


def signature_of(secret_key: bytes, ext: Mapping[str, object], body: Sequence[Bytes]) -> bytes:
    """The value of the field ``Signature``. ``body`` may come in parts.

    Raises :class:`UnicodeEncodeError` for text that is not UTF-8.
    """
    content = b"".join((signed_text(ext).encode(), *body))
    return b64encode(hmac.digest(secret_key, content, "sha1"))


def is_signed_by(secret_key: bytes, ext: Mapping[str, object], body: bytes) -> bool:
    """Whether the fields have the right signature. The comparison takes constant time."""
    given = ext.get(SIGNATURE)
    if type(given) is not str:
        return False
    try:
        return hmac.compare_digest(signature_of(secret_key, ext, (body,)), given.encode())
    except UnicodeEncodeError:
        return False


def _java_text(value: object) -> str:
    if value is None:
        return ""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)
