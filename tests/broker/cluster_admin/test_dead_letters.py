"""A dead letter is sent again as it was stored."""

from __future__ import annotations

from broker.client.message import MessageQueue
from broker.client.received_message import ReceivedMessage
from broker.cluster_admin.dead_letters import send_again
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.record import make_pending_message
from tests.broker.client.fake_cluster import HOST, NOW_MS
from tests.broker.client.producer.producers import TOPIC, start, stop
from tests.support.virtual_network import NetworkedLoop

DEAD = "%DLQ%billing"


def dead_letter(body: bytes, *, flag: int = 0, sys_flag: int = 0) -> ReceivedMessage:
    message = make_pending_message(
        DEAD, body, b"k\x01v", flag=flag, sys_flag=sys_flag, born_timestamp=NOW_MS, born_host=HOST
    )
    batch = b"".join(encode_batch(0, NOW_MS, HOST, [QueueRun(DEAD, 0, 0, [message])], b""))
    records = decode_batch(memoryview(batch)).records
    return ReceivedMessage(MessageQueue(DEAD, "broker-a", 0), 0, memoryview(records), 0)


async def test_it_keeps_its_flag_and_its_body_as_it_is(loop: NetworkedLoop) -> None:
    """Also a body that says that it is compressed, and is not."""
    cluster, (broker,), producer = await start(loop, queues=1)
    letters = [dead_letter(b"plain", flag=7), dead_letter(b"no zlib", sys_flag=0x1)]
    assert [each async for each in send_again(producer, TOPIC, letters)] == letters
    assert broker.group.bodies(TOPIC, 0) == [b"plain", b"no zlib"]
    sent = [(each.ext["h"], each.ext["f"]) for each in broker.requests if "h" in each.ext]
    assert sent == [("7", "0"), ("0", "1")]
    await stop(cluster, producer)
