"""What topics and properties of many messages give: tags codes and key hashes, column by column.

Behind its body a record has its *tail*: topic and properties. The tails of one topic and size
mostly have one *layout*: the same bytes but for values of properties. The first of them is taken
apart; in the others only the columns that vary are looked at. Both a tags code and a key hash are
linear in each byte of the text, so what a column changes in them is one table look-up a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from store.javahash import tags_code
from store.properties import KEYS, NAME_END, PAIR_END, TAGS, UNIQUE_KEY
from store.record import derive, key_prefix

LAYOUTS_TRIED = 8
"""So many layouts among tails of one size are worth a pass over all of them."""
ALIKE_MIN = 8
"""Below so many tails taking each apart is as fast."""
TAIL_SIZE_MAX = 1 << 17
ROWS_AT_ONCE = 32
COLUMNS_MAX = 4096
"""No table reaches further from the end of a text."""

Octets = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint32]
Span = tuple[int, int]


@dataclass(slots=True)
class Derived:
    """By message: its tags code and the number of its keys; and the hashes of the keys.

    ``hashes`` are for some of the messages each (``places``), a column for each of their keys.
    """

    tags: Numbers
    key_counts: Numbers
    hashes: list[tuple[Numbers, list[Hashes]]]


@dataclass(slots=True)
class _Layout:
    """A tail taken apart. ``free`` says of which columns another tail may have other bytes."""

    topic_part: bytes
    free: NDArray[np.bool_]
    tags: int
    tags_span: Span | None
    hashes: tuple[int, ...]
    words: list[Span]


def derive_columns(
    octets: Octets, topics: Sequence[str], topic_of: Numbers, begins: Numbers, ends: Numbers
) -> Derived | None:
    """Takes the tails between ``begins`` and ``ends`` apart; ``topic_of`` counts in ``topics``.

    ``None`` where one is none of its topic.
    """
    sizes = ends - begins
    if sizes.max() > TAIL_SIZE_MAX:
        return None
    count = len(sizes)
    derived = Derived(np.zeros(count, np.int64), np.zeros(count, np.int64), [])
    groups = topic_of * (2 * TAIL_SIZE_MAX) + sizes
    if (groups == groups[0]).all():
        members = [np.arange(count)]
    else:
        order = np.argsort(groups, kind="stable")
        members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    for places in members:
        topic = topics[topic_of[places[0]]]
        if not _derive_group(octets, topic, places, begins, int(sizes[places[0]]), derived):
            return None
    return derived


def gather(octets: Octets, starts: Numbers, size: int) -> Octets:
    """``size`` bytes from each of the places, a row each."""
    windows = np.ndarray((len(octets) - size + 1,), f"V{size}", octets, strides=(1,))
    return windows[starts].view(np.uint8).reshape(len(starts), size)


def _derive_group(  # noqa: PLR0917 - internal, in the order of the caller
    octets: Octets, topic: str, places: Numbers, begins: Numbers, size: int, derived: Derived
) -> bool:
    """Tails of one topic and size, layout by layout."""
    name = topic.encode()
    topic_part = bytes((len(name),)) + name
    prefix = key_prefix(topic)
    for _ in range(LAYOUTS_TRIED):
        if len(places) < ALIKE_MIN:
            break
        tails = gather(octets, begins[places], size)
        layout = _take_apart(tails[0].tobytes(), topic_part, prefix)
        if layout is None:
            return False
        fits, tags, hashes = _derive_alike(tails, layout)
        rest = places[:0]
        if fits is not None:
            places, rest = places[fits], places[~fits]
        derived.tags[places] = tags
        derived.key_counts[places] = len(hashes)
        if hashes:
            derived.hashes.append((places, hashes))
        places = rest
    for place in places.tolist():
        begin = int(begins[place])
        layout = _take_apart(octets[begin : begin + size].tobytes(), topic_part, prefix)
        if layout is None:
            return False
        derived.tags[place] = layout.tags
        derived.key_counts[place] = len(layout.hashes)
        if layout.hashes:
            columns = [np.array([one], np.uint32) for one in layout.hashes]
            derived.hashes.append((np.array([place]), columns))
    return True


def _take_apart(tail: bytes, topic_part: bytes, prefix: int) -> _Layout | None:
    """The layout of a tail; ``None`` for one that is none of the topic."""
    at = len(topic_part) + 2
    properties = tail[at:]
    if tail[:at] != topic_part + len(properties).to_bytes(2, "big"):
        return None
    code, hashes = derive(prefix, properties) if properties else (0, ())
    layout = _Layout(topic_part, np.zeros(len(tail), bool), code, None, hashes, [])
    unique, keys = _find(properties, UNIQUE_KEY), _find(properties, KEYS)
    words = [] if unique is None else [unique]
    if keys is not None:
        place = keys[0]
        for word in properties[keys[0] : keys[1]].split():
            place = properties.index(word, place)
            words.append((place, place + len(word)))
            place += len(word)
    if [crc32c(properties[start:end], prefix) for start, end in words] != list(hashes):
        return layout  # nothing is free then: only equal tails are alike
    spans = [span for span in words if span[1] - span[0] <= COLUMNS_MAX]
    layout.words = [(at + start, at + end) for start, end in words]
    tag = _find(properties, TAGS)
    if tag is not None:
        text = properties[tag[0] : tag[1]]
        if text.isascii() and min(text) > ord(b" ") and tags_code(text.decode()) == code:
            layout.tags_span = (at + tag[0], at + tag[1])
            spans.append(tag)
    spans += _other_values(properties)
    for start, end in spans:
        layout.free[at + start : at + end] = True
    return layout


def _derive_alike(
    tails: Octets, layout: _Layout
) -> tuple[NDArray[np.bool_] | None, Numbers | int, list[Hashes]]:
    """Which tails have the layout of the first (``None``: all); tags codes and hashes of those."""
    first = tails[0]
    varying = _varying_columns(tails)
    if not len(varying):
        return None, layout.tags, [np.full(len(tails), one, np.uint32) for one in layout.hashes]
    is_free = layout.free[varying]
    columns = np.ascontiguousarray(tails[:, varying[is_free]].T)
    # A value that holds no separator and no blank keeps its place and stays one word.
    fits = (columns > ord(b" ")).all(axis=0)
    if not is_free.all():
        fixed = varying[~is_free]
        fits &= (tails[:, fixed] == first[fixed]).all(axis=1)
    varying = varying[is_free]
    tag_start, tag_end = layout.tags_span or (0, 0)
    of_tag = (varying >= tag_start) & (varying < tag_end)
    if of_tag.any():
        fits &= (columns[of_tag] < 0x80).all(axis=0)
    which: NDArray[np.bool_] | None = None
    if not fits.all():
        which = np.asarray(fits)
        columns = columns[:, which]
    tags: Numbers | int = layout.tags
    if of_tag.any():
        tags = _tags_codes(columns[of_tag], first, varying[of_tag], layout)
    hashes = [np.full(columns.shape[1], one, np.uint32) for one in layout.hashes]
    for (start, end), words in zip(layout.words, hashes, strict=False):
        for row in np.flatnonzero((varying >= start) & (varying < end)).tolist():
            column = int(varying[row])
            effect = _crc_effect(end - 1 - column)[columns[row] ^ first[column]]
            np.bitwise_xor(words, effect, out=words)
    return which, tags, hashes


def _varying_columns(tails: Octets) -> Numbers:
    """The columns in which not all tails are as the first."""
    count, size = tails.shape
    # Of many rows at once: NumPy takes about as long for a short row as for a long one.
    whole = count - count % ROWS_AT_ONCE
    rows = np.tile(tails[0], ROWS_AT_ONCE)
    differs = tails[:whole].reshape(-1, ROWS_AT_ONCE * size) ^ rows
    found = np.bitwise_or.reduce(differs, axis=0).reshape(ROWS_AT_ONCE, size)
    rest = np.bitwise_or.reduce(tails[whole:] ^ tails[0], axis=0)
    return np.flatnonzero(np.bitwise_or.reduce(found, axis=0) | rest)


def _tags_codes(columns: Octets, first: Octets, varying: Numbers, layout: _Layout) -> Numbers:
    """Java's hash: each character counts 31 to the power of those behind it, modulo 2^32."""
    end = layout.tags_span[1] if layout.tags_span is not None else 0
    codes = np.full(columns.shape[1], layout.tags & 0xFFFFFFFF, np.uint32)
    for row, column in enumerate(varying.tolist()):
        factor = np.uint32(pow(31, end - 1 - column, 1 << 32))
        codes += (columns[row].astype(np.uint32) - np.uint32(first[column])) * factor
    return codes.view(np.int32).astype(np.int64)


_EFFECTS: list[Hashes] = []


def _crc_effect(distance: int) -> Hashes:
    """By which XOR of a CRC32C a byte is told that is XORed ``distance`` bytes before the end."""
    if not _EFFECTS:
        _EFFECTS.append(np.array([crc32c(bytes((octet,))) for octet in range(256)], np.uint32))
        _EFFECTS[0] = _EFFECTS[0] ^ _EFFECTS[0][0]
    while len(_EFFECTS) <= distance:
        last = _EFFECTS[-1]
        _EFFECTS.append((last >> np.uint32(8)) ^ _EFFECTS[0][last & np.uint32(0xFF)])
    return _EFFECTS[distance]


def _find(properties: bytes, name: bytes) -> Span | None:
    """Where the value of a property begins and ends, if it has one that is not empty."""
    mark = PAIR_END + name + NAME_END
    start = (PAIR_END + properties).find(mark) + len(mark) - 1
    if start < len(mark) - 1:
        return None
    end = (properties + PAIR_END).index(PAIR_END, start)
    return (start, end) if end > start else None


def _other_values(properties: bytes) -> list[Span]:
    """Values from which nothing is derived, where they hold no blank."""
    spans = []
    place = 0
    for pair in properties.split(PAIR_END):
        name, separator, value = pair.partition(NAME_END)
        start = place + len(name) + len(separator)
        if value and name not in {KEYS, UNIQUE_KEY, TAGS} and min(value) > ord(b" "):
            spans.append((start, start + len(value)))
        place += len(pair) + 1
    return spans
