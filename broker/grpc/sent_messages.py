"""Converts stored records to messages for gRPC clients."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from broker.delivery.inflated_bodies import inflated_body
from broker.grpc import property_names as names
from broker.grpc.protocol.definition_pb2 import (
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from broker.grpc.received_messages import body_digest
from broker.limits import GRPC
from broker.remoting.protocol.addresses import host_text
from broker.remoting.protocol.ext_fields import INT32_MAX
from store.message.record import MessageRecord


def message_of(record: MessageRecord, topic: Resource, body: bytes | None = None) -> Message:
    """The message of a record; its topic is named as in the client's request.

    A compressed body is decompressed, because RocketMQ 4 has compressions that gRPC clients do not
    know; unless the caller has done so, and gives the ``body``.
    """
    properties = record.property_map
    system = SystemProperties(
        keys=properties.get(names.KEYS, "").split(),
        message_id=properties.get(names.UNIQUE_KEY) or record.offset_message_id,
        body_encoding=Encoding.IDENTITY,
        message_type=_type_of(record, properties),
        born_timestamp=timestamp(record.born_timestamp),
        born_host=host_text(record.born_host),
        store_timestamp=timestamp(record.store_timestamp),
        store_host=host_text(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(record.reconsume_times + 1, INT32_MAX),
    )
    if properties.get(names.TAGS):
        system.tag = properties[names.TAGS]
    if names.MESSAGE_GROUP in properties:
        system.message_group = properties[names.MESSAGE_GROUP]
    if names.TRACE_CONTEXT in properties:
        system.trace_context = properties[names.TRACE_CONTEXT]
    deliver_ms = properties.get(names.TIMER_OUT_MS) or properties.get(names.DELIVER_MS, "")
    if deliver_ms.isascii() and deliver_ms.isdecimal() and len(deliver_ms) <= 15:
        system.delivery_timestamp.CopyFrom(timestamp(int(deliver_ms)))
    if names.DEAD_LETTER_TOPIC in properties:
        system.dead_letter_queue.topic = properties[names.DEAD_LETTER_TOPIC]
        system.dead_letter_queue.message_id = properties.get(names.DEAD_LETTER_MESSAGE_ID, "")
    body = inflated_body(record, GRPC.inflated_size) if body is None else body
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = body_digest(DigestType.MD5, body)
    users = {name: value for name, value in properties.items() if name not in names.RESERVED}
    return Message(topic=topic, user_properties=users, system_properties=system, body=body)


def timestamp(milliseconds: int) -> Timestamp:
    """A time in the protocol's form."""
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def _type_of(record: MessageRecord, properties: dict[str, str]) -> MessageType:
    if properties.get(names.HALF) == "true" or record.prepared_position:
        return MessageType.TRANSACTION
    if names.TIMER_OUT_MS in properties or names.DELIVER_MS in properties:
        return MessageType.DELAY
    return MessageType.FIFO if names.MESSAGE_GROUP in properties else MessageType.NORMAL
