"""Counts in messages for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Such as ``1 message`` and ``2 messages``; ``noun`` is the singular."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
