"""Tags codes and key hashes from the properties of many messages at once.

One pass over the bytes finds the separators of all property strings. Names are compared with TAGS,
UNIQ_KEY and KEYS. Tags codes and key hashes are linear in the bytes of a text. So they are computed
for many texts of different sizes at once, each text at the end of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from store.message.properties import KEYS, NAME_END, PAIR_END, TAGS, UNIQUE_KEY
from store.verify.log.byte_columns import (
    WIDTHS,
    Numbers,
    Octets,
    Words,
    by_width,
    differing_columns,
    gather,
    texts_after,
    texts_before,
)
from store.verify.log.derivation import java_hash

SIZES = (190, 1022, 1 << 17)
"""Property strings up to each of these sizes are handled many at once."""
BYTES_AT_ONCE = 1 << 22

_NAME_SIZE = 8
_SHORT = np.uint64((1 << 8 * 5) - 1)
_NOT_ASCII = np.uint64(0x8080808080808080)
_TAB, _BLANKS = 9, 5
"""Keys are separated by blanks, and by the five octets from the tab on."""


@dataclass(slots=True)
class PropertyColumns:
    """By message its tags code and its number of keys; and the hashes of all keys, in order."""

    tags: Numbers
    key_counts: Numbers
    hashes: Words


class _Texts(NamedTuple):
    """Texts in a buffer: the message of each, its first byte, and its size in bytes."""

    of: Numbers
    starts: Numbers
    sizes: Numbers

    @classmethod
    def joined(cls, parts: list[_Texts]) -> _Texts:
        if len(parts) == 1:
            return parts[0]
        columns = zip(*parts, strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def derive_columns(
    octets: Octets, starts: Numbers, sizes: Numbers, prefixes: Words
) -> PropertyColumns:
    """Derives the columns from property strings, given by their starts and sizes in ``octets``.

    ``prefixes``: by message, the CRC32C with which its key hashes begin. There must be 128 bytes
    before each string.
    """
    tags, unique, keys = _find_all(octets, starts, sizes)
    words = _split(octets, keys)
    count = len(starts)
    codes = np.zeros(count, np.int64)
    codes[tags.of] = _tags_codes(octets, tags)
    has_unique = np.bincount(unique.of, minlength=count)
    key_counts = has_unique + np.bincount(words.of, minlength=count)
    begins = np.cumsum(key_counts) - key_counts
    places = begins[words.of] + has_unique[words.of]
    if words is not keys:
        numbers = np.arange(len(words.of))
        is_first = np.append(True, words.of[1:] != words.of[:-1])
        places += numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    hashes = np.empty(len(unique.of) + len(words.of), np.uint32)
    both = _Texts.joined([unique, words])
    hashes[np.concatenate((begins[unique.of], places))] = _key_hashes(octets, both, prefixes)
    return PropertyColumns(codes, key_counts, hashes)


def _find_all(octets: Octets, starts: Numbers, sizes: Numbers) -> list[_Texts]:
    """The tags, the unique keys and the keys."""
    parts = []
    low = -1
    most = int(sizes.max())
    for high in SIZES:
        if low >= most:
            break
        numbers = np.flatnonzero((sizes > low) & (sizes <= high))
        low = high
        if not len(numbers):
            continue
        # One column before the string, and one behind it.
        width = int(sizes[numbers].max()) + 9 & ~7
        count = max(1, BYTES_AT_ONCE // width)
        for first in range(0, len(numbers), count):
            some = numbers[first : first + count]
            found = _find(octets, starts[some], sizes[some], width)
            parts.append([text._replace(of=some[text.of]) for text in found])
    return [_Texts.joined(list(each)) for each in zip(*parts, strict=True)]


def _find(octets: Octets, starts: Numbers, sizes: Numbers, width: int) -> list[_Texts]:
    """As :func:`_find_all`, for strings that fit into ``width`` columns."""
    # The separator at the end of a string ends no other pair.
    sizes = sizes - (octets[starts + sizes - 1] == PAIR_END[0])
    rows = texts_after(octets, starts - 1, sizes + 1, width)
    rows[:, 0] = PAIR_END[0]
    flat = rows.ravel()
    before = np.flatnonzero(flat == PAIR_END[0])
    names = gather(flat, before + 1, _NAME_SIZE).view("<u8").ravel()
    short = names & _SHORT
    before = np.append(before, len(flat))
    found = []
    for name, heads in ((TAGS, short), (UNIQUE_KEY, names), (KEYS, short)):
        wanted = int.from_bytes((name + NAME_END)[:_NAME_SIZE], "little")
        pairs = np.flatnonzero(heads == np.uint64(wanted))
        of = before[pairs] // width
        begins = before[pairs] + (len(name) + 2)
        # A pair ends where the next one begins, and the last pair where the string ends.
        first = of * width
        ends = np.minimum(before[pairs + 1], first + sizes[of] + 1)
        kept = begins <= ends
        if name is UNIQUE_KEY:
            kept &= flat[np.minimum(begins - 1, len(flat) - 1)] == NAME_END[0]
        if not kept.all():
            of, first, begins, ends = of[kept], first[kept], begins[kept], ends[kept]
        kept = ends > begins
        kept[1:] &= of[1:] != of[:-1]  # the first property of a name counts
        if not kept.all():
            of, first, begins, ends = of[kept], first[kept], begins[kept], ends[kept]
        found.append(_Texts(of, begins - first + starts[of] - 1, ends - begins))
    return found


def _split(octets: Octets, keys: _Texts) -> _Texts:
    """The keys of each message, in order: the words of its KEYS."""
    blanks: list[Numbers] = []
    blanks_of: list[Numbers] = []
    ends = keys.starts + keys.sizes
    for width, members in by_width(keys.sizes):
        if width:
            rows = texts_before(octets, ends[members], keys.sizes[members], width)
            places = np.flatnonzero((rows == ord(b" ")) | (rows - np.uint8(_TAB) < _BLANKS))
            text, column = members[places // width], places % width
            blanks.append(ends[text] - width + column)
            blanks_of.append(keys.of[text])
            continue
        for number in members.tolist():
            start = int(keys.starts[number])
            octet = octets[start : int(ends[number])]
            places = np.flatnonzero((octet == ord(b" ")) | (octet - np.uint8(_TAB) < _BLANKS))
            blanks.append(places + start)
            blanks_of.append(np.full(len(places), keys.of[number]))
    if not any(map(len, blanks)):
        return keys
    starts = np.concatenate((keys.starts, *(places + 1 for places in blanks)))
    order = np.argsort(starts, kind="stable")
    starts = starts[order]
    # Each word ends at the next blank or at the end of its text. Starts and ends have one order.
    sizes = np.sort(np.concatenate((ends, *blanks)), kind="stable") - starts
    of = np.concatenate((keys.of, *blanks_of))[order]
    full = sizes > 0
    return _Texts(of[full], starts[full], sizes[full])


def _tags_codes(octets: Octets, tags: _Texts) -> Numbers:
    """Java's hash: each character times 31 to the number of characters behind it, modulo 2^32."""
    codes = np.empty(len(tags.of), np.int64)
    view = octets.data
    for width, members in by_width(tags.sizes):
        ends = tags.starts[members] + tags.sizes[members]
        odd = np.arange(len(members))
        if width:
            rows = texts_before(octets, ends, tags.sizes[members], width)
            hashes = rows.astype(np.uint32) @ _powers(width)
            codes[members] = hashes.view(np.int32)
            odd = np.flatnonzero((rows.view(np.uint64) & _NOT_ASCII).any(axis=1))
        # The code by bytes is right for ASCII only. Zeros before a text do not change its code.
        if width:
            texts = rows[odd].view(f"V{width}").ravel().tolist()
        else:
            pairs = zip(tags.starts[members].tolist(), ends.tolist(), strict=True)
            texts = [bytes(view[start:end]) for start, end in pairs]
        if texts:
            by_text = {text: java_hash(text) for text in set(texts)}
            codes[members[odd]] = [by_text[text] for text in texts]
    return codes


@cache
def _powers(width: int) -> Words:
    return np.array([pow(31, width - 1 - place, 1 << 32) for place in range(width)], np.uint32)


def _key_hashes(octets: Octets, keys: _Texts, prefixes: Words) -> Words:
    """The CRC32C of each key, continued from the prefix of its message."""
    hashes = np.empty(len(keys.of), np.uint32)
    for width, members in by_width(keys.sizes):
        sizes, of = keys.sizes[members], keys.of[members]
        if width:
            rows = texts_before(octets, keys.starts[members] + sizes, sizes, width)
            found = _of_zeros(prefixes[of], sizes)
            # Keys of one kind differ in few places. In the others they all have the first's bytes.
            first = rows[0]
            table = _effects(width)
            effects = table[np.arange(width), first]
            for place in differing_columns(rows).tolist():
                found ^= table[place][rows[:, place]]
                effects[place] = 0
            found ^= np.bitwise_xor.reduce(effects)
            hashes[members] = found
            continue
        for number, prefix in zip(members.tolist(), prefixes[of].tolist(), strict=True):
            start = int(keys.starts[number])
            hashes[number] = crc32c(octets.data[start : start + int(keys.sizes[number])], prefix)
    return hashes


@cache
def _effects(width: int) -> Words:
    """What a byte at a place of a row changes in the CRC32C (XOR), at [place, byte]."""
    effect = np.array([crc32c(bytes((octet,))) for octet in range(256)], np.uint32)
    effect ^= effect[0]
    table = [effect]
    while len(table) < width:
        table.append(_behind_zero(table[-1], effect))
    return np.stack(table[::-1])


def _behind_zero(registers: Words, effect: Words) -> Words:
    """CRC registers after one more zero byte."""
    found: Words = (registers >> np.uint32(8)) ^ effect[registers & np.uint32(0xFF)]
    return found


def _of_zeros(prefixes: Words, sizes: Numbers) -> Words:
    """The CRC32C of ``sizes`` zero bytes, continued from the prefixes."""
    size, prefix = int(sizes[0]), int(prefixes[0])
    if (sizes == size).all() and (prefixes == prefix).all():
        return np.full(len(sizes), crc32c(bytes(size), prefix), np.uint32)
    shifted, zeros = _shifts()
    found = zeros[sizes]
    at = sizes << 10
    for octet in range(4):
        found ^= shifted[at + (octet << 8) + (prefixes >> np.uint32(8 * octet) & np.uint32(0xFF))]
    return found


@cache
def _shifts() -> tuple[Words, Words]:
    """Two tables. First: each byte of a CRC after *n* zero bytes, at 1024 * n + 256 * its place +
    byte. Second: the CRC of *n* zero bytes, at n."""
    effect = _effects(WIDTHS[0])[-1]
    octets = np.arange(256, dtype=np.uint32)
    registers = [np.concatenate([octets << np.uint32(8 * place) for place in range(4)])]
    while len(registers) <= WIDTHS[-1]:
        registers.append(_behind_zero(registers[-1], effect))
    zeros = [crc32c(bytes(size)) for size in range(WIDTHS[-1] + 1)]
    return np.concatenate(registers), np.array(zeros, np.uint32)
