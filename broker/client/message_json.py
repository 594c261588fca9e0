"""A message as the command line prints it and the HTTP port answers it."""

from __future__ import annotations

import base64
from typing import Any

from broker.client.message import MessageQueue
from broker.client.received_message import PulledBatch, ReceivedMessage


def messages_json(
    topic: str, broker: str, queue_id: int, records: bytes, next_offset: int
) -> list[dict[str, Any]]:
    """The messages whose ``records``, back to back, were read from a queue."""
    batch = PulledBatch(MessageQueue(topic, broker, queue_id), records, next_offset)
    return [message_json(message) for message in batch]


def message_json(message: ReceivedMessage) -> dict[str, Any]:
    """``body`` is text; where it is not UTF-8 there is ``body_base64`` instead."""
    document: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.message_id,
        "unique_key": message.unique_key,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
    }
    body = message.body
    try:
        document["body"] = body.decode()
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(body).decode()
    return document
