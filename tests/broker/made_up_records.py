"""Records that a client makes up.

It guesses where its next message will lie, and puts a whole record into the body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.remoting.protocol.frame import Frame
from store.log.entry import HEADER_SIZE
from store.message.batch import QueueRun, encode_batch
from store.message.record import HEAD, make_pending_message

BODY_AT = HEAD.size
"""Where in a record its body begins."""


def made_up_record(
    position: int,
    topic: str,
    *,
    queue_id: int = 0,
    offset: int = 0,
    body: bytes = b"",
    properties: bytes = b"",
    sys_flag: int = 0,
) -> bytes:
    """A record that says that it lies at ``position``."""
    message = make_pending_message(
        topic, body, properties, sys_flag=sys_flag, born_timestamp=0, born_host=bytes(8)
    )
    run = QueueRun(topic, queue_id, offset, [message])
    return b"".join(encode_batch(position - HEADER_SIZE, 0, bytes(8), [run], b""))[: message.size]


async def put_into_a_body(
    send: Callable[[bytes], Awaitable[Frame]], record_at: Callable[[int], bytes]
) -> int:
    """Sends three messages. Returns the position of the record in the body of the last one."""

    async def stored(body: bytes) -> int:
        answer = await send(body)
        assert answer.code == 0, answer.remark
        return int(str(answer.ext["msgId"])[16:], 16)

    first, second = [await stored(record_at(0)) for _ in range(2)]
    position = 2 * second - first + BODY_AT
    assert await stored(record_at(position)) + BODY_AT == position
    return position
