"""The settings of a group that the command line takes are those that a broker takes."""

from __future__ import annotations

import orjson
import pytest

from broker.cli.commands.group import RETRIES, RETRY_QUEUES
from broker.cli.terminal.numbers import WholeRange
from broker.remoting.protocol.codes import RequestCode
from tests.broker.single_broker import SingleBroker


@pytest.mark.parametrize(
    ("field", "taken"), [("retryMaxTimes", RETRIES), ("retryQueueNums", RETRY_QUEUES)]
)
async def test_both_take_the_same_numbers(
    broker: SingleBroker, field: str, taken: WholeRange
) -> None:
    assert taken.min is not None
    assert taken.max is not None
    least, most = int(taken.min), int(taken.max)
    took = []
    for number in (least - 1, least, most, most + 1):
        body = orjson.dumps({"groupName": "g", field: number})
        answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        took.append(answer.code == 0)
    assert took == [False, True, True, False]
