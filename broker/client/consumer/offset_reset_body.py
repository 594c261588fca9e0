"""The body of request 220, which tells members about an offset reset of their group.

RocketMQ sends ``{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}``: other JSON
parsers reject these keys. For C++ clients it sends a list of objects with an ``offset`` each.
"""

from __future__ import annotations

from typing import Any

import orjson

from broker.client.message import MessageQueue
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.java_json import decode_json


def reset_offsets(body: bytes) -> dict[MessageQueue, int]:
    """The new offset of each queue. Raises :class:`~broker.remoting.protocol.errors.FieldError`."""
    try:
        table: Any = decode_json(body)["offsetTable"]
        if isinstance(table, list):
            return {_queue(element): int(element["offset"]) for element in table}
        return {_queue(orjson.loads(key)): int(offset) for key, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FieldError(f"the body has no table of offsets: {error}") from None


def _queue(fields: Any) -> MessageQueue:
    return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))
