"""A message as ``dledger consume --json`` and ``dledger message --json`` print it."""

from __future__ import annotations

import base64
from typing import Any

from broker.client.pulled import ReceivedMessage


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
