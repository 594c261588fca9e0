"""Java's hash of a text, computed apart from the shipped code for comparison."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Java's ``String.hashCode`` of text in the basic plane; 0 of none."""
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code
