"""Limits of messages that come in."""

from __future__ import annotations

from typing import NamedTuple


class ProduceLimits(NamedTuple):
    """Limits of requests that are not applied yet, and of their memory."""

    pending_bytes_max: int = 64 << 20
    """Bytes of pending requests; above that requests are refused as busy."""

    suspect_bytes_max: int = 64 << 20
    """Bytes of suspected retries that are being looked up; above that they are refused as busy."""

    recent_bytes_max: int = 32 << 20
    """Bytes of the newest applied entries in memory, for readers."""

    keys_max: int = 256
    """Keys in the ``KEYS`` of a message. Each is a row of the key index; a few are usual."""

    key_size_max: int = 4096
    """Bytes of one key."""

    batch_messages_max: int = 16_384
    """Messages in one request; so many take 0.05 s."""

    batch_keys_max: int = 65_536
    """Keys of all messages in one request; so many take 0.02 s."""

    property_templates_max: int = 4096
    """Property templates; beyond that all are dropped."""

    property_template_bytes_max: int = 1024
    """Bytes of properties with a template. Longer ones get none: each would have its own and fill
    the memory."""


PRODUCE = ProduceLimits()
