"""Limits of the content of requests, besides the size of a frame."""

from __future__ import annotations

from typing import NamedTuple


class BodyLimits(NamedTuple):
    """Limits of the content of requests, besides the size of a frame."""

    json_marks: int = 40_000
    """Braces, brackets, colons and commas in the JSON of a request; so many take 10 ms. A heartbeat
    with 2,000 subscriptions has as many. The JSON may have 50 bytes for each."""

    lock_marks: int = 131_072
    """The same for a request for queue locks, which names each queue: 20 ms for most queues."""

    settings_size: int = 64 * 1024
    """Bytes of a change of settings by an operator."""

    lenient_json_size: int = 256 * 1024
    """Bytes of JSON with unquoted keys."""

    lenient_json_marks: int = 20_000
    """Braces, brackets, colons and commas of such JSON; so many take 10 ms: the keys of 2,200
    queues."""

    lenient_json_depth: int = 1024
    """The depth of nested arrays and objects of such JSON, the same as for standard JSON."""

    inflated_size: int = 16 * 1024 * 1024
    """Bytes of a body after decompression, as many as for a plain one. All GZIP bodies of one gRPC
    send together have as many."""

    expression_size: int = 64 * 1024
    """Characters of a subscription's expression. Answers about its group contain it."""

    expression_tokens: int = 4096
    """Words, numbers, texts and signs of an SQL92 expression; so many take 10 ms. ``IN`` takes
    lists of 2,000."""

    expression_size_usual: int = 4 * 1024
    """Characters of a short expression: many parsed short ones are cached, and few longer ones."""


BODY_LIMITS = BodyLimits()
