"""Looks for a request in an entry: the messages of the request, one after the other.

The messages of a request may all be alike, and so may those of the entry. To compare them from each
possible beginning on would take quadratic time. So each different message of the request gets a
number, and the numbers are searched for by the algorithm of Knuth, Morris and Pratt, which reads
each record once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from broker.scheduled.republisher import REPUBLISHED_TOPICS
from broker.scheduled.system_properties import REAL_QUEUE_ID, with_properties
from store.io.filesystem import Bytes
from store.message.batch import KEY_ROW, decode_batch
from store.message.record import MessageRecord, PendingMessage, decode_record
from store.message.scheduled_topics import TIMER_OUT_MS

_MAY_DIFFER: Mapping[bytes, None] = {REAL_QUEUE_ID: None, TIMER_OUT_MS: None}
_OTHER = -1
"""The number of a message that the request does not have."""


def same_in_retries(topic: str, message: PendingMessage | MessageRecord) -> tuple[bytes, bytes]:
    """What all tries of a message have in common: its properties and its body.

    In a scheduled message a retry may change two properties: its queue, and a delivery time that
    was counted from its arrival.
    """
    properties = message.properties
    if topic in REPUBLISHED_TOPICS:
        properties = with_properties(properties, _MAY_DIFFER)
    return properties, bytes(message.body)


def stored_request(
    entry_body: Bytes,
    start: int,
    topic: str,
    messages: Sequence[PendingMessage],
    since_ms: int,
) -> MessageRecord | None:
    """The record of the first of these messages in an entry, if the entry has all of them.

    ``start``: the position of the entry's body in the log. ``since_ms``: records with an earlier
    store time do not count. Raises :class:`~store.errors.StoreError` for bytes that are no batch.
    """
    batch = decode_batch(entry_body)
    records, key_rows = batch.records, bytes(batch.key_rows)
    numbers: dict[tuple[bytes, bytes], int] = {}
    request = [
        numbers.setdefault(same_in_retries(topic, message), len(numbers)) for message in messages
    ]
    borders = _borders(request)
    first_key = messages[0].key_hashes[0]
    begins = dict.fromkeys(position - start for position in _positions(key_rows, first_key))
    place, matched = 0, 0
    places: list[int] = []
    for begin in begins:
        place = max(place, begin)
        while place < len(records) and (matched or place in begins):
            record = decode_record(records, place)
            number = numbers.get(same_in_retries(topic, record), _OTHER)
            if record.topic != topic or record.store_timestamp < since_ms:
                number = _OTHER
            while matched and request[matched] != number:
                matched = borders[matched - 1]
            matched += request[matched] == number
            places.append(place)
            place += record.size
            if matched == len(request):
                return decode_record(records, places[-matched])
    return None


def _borders(numbers: Sequence[int]) -> Sequence[int]:
    """For each place: how many of the numbers up to there are the first ones again, all of them
    aside."""
    borders = [0]
    for number in numbers[1:]:
        length = borders[-1]
        while length and numbers[length] != number:
            length = borders[length - 1]
        borders.append(length + (numbers[length] == number))
    return borders


def _positions(key_rows: bytes, wanted: int) -> Iterator[int]:
    """Positions of the records whose key hash is ``wanted``."""
    found = wanted.to_bytes(4, "big")
    place = key_rows.find(found)
    while place >= 0:
        if place % KEY_ROW.size == 0:
            _, position, _ = KEY_ROW.unpack_from(key_rows, place)
            yield position
        place = key_rows.find(found, place + 1)
