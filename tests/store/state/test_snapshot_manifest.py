"""The manifest of a snapshot says what was written, or that it is damaged."""

from __future__ import annotations

import dataclasses

import pytest

from store.errors import DamagedError, DataFormatError
from store.state.snapshot_manifest import Manifest, decode_manifest, encode_manifest

MANIFEST = Manifest("broker-a", "n0", 3, 0, 41, 4711, 0xDEADBEEF, 1_700_000_000_000)


def test_a_manifest_survives_a_round_trip() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "m") == MANIFEST


def test_every_flipped_bit_but_of_white_space_at_the_end_is_damage() -> None:
    data = encode_manifest(MANIFEST)
    for byte in range(len(data) - 1):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[byte] ^= 1 << bit
            with pytest.raises(DamagedError):
                decode_manifest(bytes(flipped), "m")


def test_another_version_is_told_from_damage() -> None:
    later = encode_manifest(dataclasses.replace(MANIFEST, format_version=3))
    with pytest.raises(
        DataFormatError, match="m: format 3, and this program knows formats up to 2"
    ):
        decode_manifest(later, "m")


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"format_version": 1}'])
def test_what_is_no_manifest_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedError):
        decode_manifest(data, "m")
