"""A queue that a topic does not have: one refusal for every request, counted under one name."""

from __future__ import annotations

import asyncio

import pytest

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.single_broker import SingleBroker, pull_ext, send_ext

PLACE = {"topic": "orders", "queueId": "9"}
POP = {
    "consumerGroup": "g",
    "maxMsgNums": "1",
    "invisibleTime": "1000",
    "pollTime": "0",
    "bornTime": "0",
    "initMode": "0",
}
ERROR = ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("code", "ext", "answer", "use"),
    [
        (RequestCode.SEND_MESSAGE_V2, send_ext("orders", 9), ERROR, ""),
        (RequestCode.SEND_BATCH_MESSAGE, send_ext("orders", 9), ERROR, ""),
        (RequestCode.PULL_MESSAGE, pull_ext("orders", 9, 0), ERROR, " to read"),
        # As RocketMQ 5, which refuses all others with 1, or does not look.
        (RequestCode.POP_MESSAGE, PLACE | POP, ResponseCode.INVALID_PARAMETER, " to read"),
        (RequestCode.NOTIFICATION, PLACE | POP, ResponseCode.INVALID_PARAMETER, " to read"),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            PLACE | {"consumerGroup": "g", "commitOffset": "0"},
            ERROR,
            "",
        ),
        (RequestCode.GET_MAX_OFFSET, PLACE, ERROR, ""),
        (RequestCode.GET_MIN_OFFSET, PLACE, ERROR, ""),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, PLACE, ERROR, ""),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, PLACE | {"timestamp": "0"}, ERROR, ""),
        (RequestCode.QUERY_CONSUME_QUEUE, PLACE | {"index": "0", "count": "1"}, ERROR, ""),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            PLACE | {"group": "g", "timestamp": "0", "isForce": "true"},
            ERROR,
            "",
        ),
    ],
)
async def test_it_is_refused_alike(
    broker: SingleBroker, code: RequestCode, ext: dict[str, str], answer: ResponseCode, use: str
) -> None:
    await broker.create_topic("orders")
    before = broker.broker.context.machine.applied_end
    found = await broker.ask(code, ext, b"x")
    text = f"the topic orders has no queue 9{use}, its queues are 0 to 3"
    assert (found.code, found.remark) == (answer, text)
    assert broker.server.refusals == {"unknown_queue": 1}
    await asyncio.sleep(1)
    assert broker.broker.context.machine.applied_end == before
