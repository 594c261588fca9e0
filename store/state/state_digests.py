"""State digests: by these replicas know whether their states agree, and which one is right.

The state consists of tables. The digest of a table is the sum, modulo 2^64, of the digests of its
items. So it does not depend on their order, and a change of one item costs the digest of that item
alone. The digest of an item is BLAKE2b of 8 bytes over the item as a MessagePack array:

============  ====================================================================================
topics        the fields of each topic; ``[counter, timestamp]`` of the table's data version
groups        the fields of each subscription group; likewise
offsets       ``[group, topic, queue id, offset]``; of POP ``[group, topic, queue id, next offset,
              "next"]`` of each cursor, ``[group, topic, queue id, offset, visible ms, attempt,
              nonce, hash of the message group]`` of each delivery, and ``["pop", newest time]``
queues        ``[topic, queue id, first offset, end offset]`` of each ConsumeQueue
transactions  ``[offset of the half message, position, group, stored ms, immunity ms, checks,
              checked ms]`` of each that is open
waiting       ``[delay level, offset]``; ``[deliver ms, offset, waiting]`` of the timer, if any;
              ``[deliver ms, offset, "recalled"]`` of each timed message that was taken back
requests      ``[bytes, CRC32C]`` of the recent requests, if any
settings      ``[name, value]`` of each setting; ``[name, definition]`` of each account
log           ``[expired position, newest store time ms]``; ``[start of a segment, store time ms]``
============  ====================================================================================

The items are rows of the checkpoint (``docs/format.md``), so a checkpoint is enough to compute
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import msgpack
from crc32c import crc32c

from store.errors import DataFormatError
from store.field_checks import array, binary, integer, text
from store.io.filesystem import Bytes
from store.state.machine_state import MachineState

TABLES = (
    "topics",
    "groups",
    "offsets",
    "queues",
    "transactions",
    "waiting",
    "requests",
    "settings",
    "log",
)
DIGEST_MODULUS = 1 << 64
_DIGESTS = Struct(f">{len(TABLES)}Q")
DIGESTS_BYTES = _DIGESTS.size
"""Format: a u64 for each table."""

_pack = msgpack.Packer().pack


def item_digest(item: object) -> int:
    """The digest of one item, which is anything that MessagePack packs."""
    return int.from_bytes(blake2b(_pack(item), digest_size=8).digest(), "big")


def sum_of(items: Iterable[object]) -> int:
    """The digest of a table with these items."""
    return sum(map(item_digest, items)) % DIGEST_MODULUS


def requests_item(data: Bytes) -> tuple[int, int]:
    """The recent requests as an item."""
    return len(data), crc32c(data)


def pack_digests(digests: Sequence[int]) -> bytes:
    """One of each table, in the order of :data:`TABLES`."""
    return _DIGESTS.pack(*digests)


def digests_of(machine: MachineState) -> bytes:
    """The digests of the state in a checkpoint.

    Raises :class:`~store.errors.DataFormatError` if the state of the broker cannot be read.
    """
    try:
        _version, *fields = array(msgpack.unpackb(machine.broker))
        parts = fields.pop() if len(fields) == _FIELDS_WITH_PARTS else {}
        topics, groups, offsets, topics_version, groups_version, stored_ms = fields
        if not isinstance(parts, dict):
            raise DataFormatError("the parts of the state are no map")
        pop_ms, pop_queues = array(parts.get("pop", [0, []]), 2)
        timer = array(parts.get("timer", []))
        requests = binary(parts.get("requests", b""))
        tables = (
            [*array(topics), topics_version],
            [*array(groups), groups_version],
            [
                *[
                    [text(group), text(topic), *array(each, 2)]
                    for group, topic, queues in (array(row, 3) for row in array(offsets))
                    for each in array(queues)
                ],
                *_pop_items(array(pop_queues)),
                *([("pop", integer(pop_ms))] if pop_ms else []),
            ],
            machine.queues,
            [
                [integer(offset), *array(opened)]
                for offset, opened in (
                    array(row, 2) for row in array(parts.get("transactions", []))
                )
            ],
            [
                *array(parts.get("schedule", [])),
                *([timer] if timer else []),
                *[(*array(row, 2), "recalled") for row in array(parts.get("recalled", []))],
            ],
            [requests_item(requests)] if requests else [],
            [*array(parts.get("settings", [])), *array(parts.get("access", []))],
            [(machine.expired_position, stored_ms), *machine.segment_times.items()],
        )
        return pack_digests([sum_of(items) for items in tables])
    except (ValueError, msgpack.UnpackException) as error:
        raise DataFormatError(f"the state of the broker cannot be read: {error}") from error


def _pop_items(queues: Sequence[object]) -> Iterable[object]:
    for row in queues:
        group, topic, queue_id, next_offset, deliveries = array(row, 5)
        of = text(group), text(topic), integer(queue_id)
        yield (*of, integer(next_offset), "next")
        for delivery in array(deliveries):
            yield (*of, *array(delivery, 5))


_FIELDS_WITH_PARTS = 7


# --- what the log says of them

PROOF = "proof"
"""The name of the command that has the digests of the members."""


class StateVerdict(NamedTuple):
    """Who is right after one entry.

    ``right``: by table, the digest that a majority has. ``wrong``: by member, the tables in which
    it differs from that. ``contested``: tables in which members differ, and no majority agrees.
    """

    right: Mapping[str, bytes]
    wrong: Mapping[str, tuple[str, ...]]
    contested: tuple[str, ...]

    def differences(self, digests: bytes) -> tuple[str, ...]:
        """The tables in which these are not the majority's."""
        own = by_table(digests)
        return tuple(name for name, right in self.right.items() if own.get(name) != right)

    @property
    def decided(self) -> bool:
        """Whether there is a majority for every table."""
        return len(self.right) == len(TABLES)


def by_table(digests: bytes) -> dict[str, bytes]:
    """The digest of each table; empty if the number of tables is another."""
    if len(digests) != DIGESTS_BYTES:
        return {}
    return {name: digests[8 * at : 8 * at + 8] for at, name in enumerate(TABLES)}


def judge(reports: Mapping[str, bytes]) -> StateVerdict:
    """What a majority of the voters says. ``reports`` has every voter, empty if it reported
    nothing.

    A table has a majority if more than half of all voters report the same. Voters that reported
    nothing count too.
    """
    said = {member: by_table(digests) for member, digests in reports.items()}
    right: dict[str, bytes] = {}
    contested = []
    for name in TABLES:
        counts = Counter(tables[name] for tables in said.values() if tables)
        digest, count = max(counts.items(), key=lambda each: each[1], default=(b"", 0))
        if 2 * count > len(reports):
            right[name] = digest
        elif len(counts) > 1:
            contested.append(name)
    wrong = {
        member: tuple(name for name, digest in right.items() if tables[name] != digest)
        for member, tables in said.items()
        if tables
    }
    return StateVerdict(
        right, {member: names for member, names in wrong.items() if names}, tuple(contested)
    )


def pack_reports(reports: Mapping[str, bytes]) -> bytes:
    """The reports as the command holds them: ``[[member, digests], ...]``, sorted."""
    packed: bytes = msgpack.packb(sorted(reports.items()))
    return packed


def unpack_reports(data: bytes) -> dict[str, bytes]:
    """The reverse of :func:`pack_reports`. Raises :class:`~store.errors.DataFormatError`."""
    try:
        rows = [array(row, 2) for row in array(msgpack.unpackb(data))]
        return {text(member): binary(digests) for member, digests in rows}
    except (ValueError, msgpack.UnpackException) as error:
        raise DataFormatError(f"the reports of the members cannot be read: {error}") from error
