"""Planted bugs G: fields of messages beside their bodies, as stored and as delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import broker.ingest.ingest
from broker.delivery.fetch import Delivery, Fetch
from broker.delivery.message_reader import GetMessageResult
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.property_templates import MessageBuilder, Origin
from broker.limits import PRODUCE
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import BROKERS
from store.io.filesystem import Bytes
from store.message.record import PendingMessage

FLAG_AT = slice(16, 20)


bug = BugsOf(BROKERS)


@bug("G1x", "was sent with the flag", 5)
def flag_of_the_first_of_a_batch(patch: Patch) -> None:
    """All messages of a batch are stored with the flag of its first."""

    @patch.instead(broker.ingest.ingest, "decode_batch_body")
    def staged(
        message_builder: MessageBuilder,
        of: Origin,
        data: bytes,
        of_all: bytes = b"",
        *,
        messages_max: int = PRODUCE.batch_messages_max,
    ) -> list[PendingMessage]:
        messages = decode_batch_body(message_builder, of, data, of_all, messages_max=messages_max)
        return [message._replace(flag=messages[0].flag) for message in messages]


def _staged(patch: Patch, change: Callable[[PendingMessage], PendingMessage]) -> None:
    stage = MessageBuilder.build

    @patch.instead(MessageBuilder, "build")
    def staged(
        message_builder: MessageBuilder, of: Origin, flag: int, body: Bytes, properties: bytes
    ) -> PendingMessage:
        return change(stage(message_builder, of, flag, body, properties))


@bug("G2x", "was sent with the hash of the tags", 5)
def tags_not_hashed(patch: Patch) -> None:
    """Rows of the ConsumeQueue hold 0 in the place of the hash of a message's tags."""
    _staged(patch, lambda message: message._replace(tags_code=0))


@bug("G3x", "was sent with the born time", 5)
def born_when_it_arrived(patch: Patch) -> None:
    """A message is stored as born a millisecond later than its producer says."""

    def later(message: PendingMessage) -> PendingMessage:
        born = int.from_bytes(message.born[4:12], "big") + 1
        return message._replace(born=message.born[:4] + born.to_bytes(8, "big") + message.born[12:])

    _staged(patch, later)


@bug("G4x", "was sent with the properties", 5)
def property_values_end_at_a_separator(patch: Patch) -> None:
    """The value of a property is cut at a comma."""

    def cut(message: PendingMessage) -> PendingMessage:
        head, comma, rest = message.properties.partition(b",")
        lost = rest.find(b"\x02") if comma else 0
        properties = head + comma + b"?" * lost + rest[lost:]
        return message._replace(properties=properties)

    _staged(patch, cut)


@bug("G5x", "which holds MessageRecord", 5)
def flag_lost_on_the_way_out(patch: Patch) -> None:
    """The first record of a pull is returned with the flag 0, which no CRC covers."""

    @patch.around(Delivery, "_answer")
    def cleared(
        answer: Original[None],
        delivery: Delivery,
        fetch: Fetch,
        found: GetMessageResult,
        parts: Sequence[Bytes] = (),
    ) -> None:
        if parts:
            first = bytearray(parts[0])
            first[FLAG_AT] = bytes(4)
            parts = [first, *parts[1:]]
        answer(delivery, fetch, found, parts)
