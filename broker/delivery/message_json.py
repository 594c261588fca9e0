"""A message as JSON, for the command line and the HTTP port."""

from __future__ import annotations

import base64
from typing import Any

from store.message.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties
from store.message.record import MessageRecord


def message_json(record: MessageRecord, body: bytes) -> dict[str, Any]:
    """``body`` is text; ``body_base64`` replaces it if it is not UTF-8."""
    properties = decode_properties(record.properties)
    document: dict[str, Any] = {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "msg_id": record.offset_message_id,
        "unique_key": properties.get(_UNIQUE_KEY, ""),
        "tags": properties.get(_TAGS, ""),
        "keys": properties.get(_KEYS, "").split(),
        "properties": properties,
        "born_timestamp": record.born_timestamp,
        "store_timestamp": record.store_timestamp,
        "reconsume_times": record.reconsume_times,
    }
    try:
        document["body"] = body.decode()
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(body).decode()
    return document


_UNIQUE_KEY, _TAGS, _KEYS = (name.decode() for name in (UNIQUE_KEY, TAGS, KEYS))
