"""A producer of transactions, by raw requests."""

from __future__ import annotations

from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame
from tests.broker.single_broker import (
    SingleBroker,
    messages,
)

HALF = "UNIQ_KEY\x01U1\x02TAGS\x01a\x02TRAN_MSG\x01true\x02PGROUP\x01payers\x02"


COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"


async def half(
    broker: SingleBroker, body: bytes = b"paid", properties: str = HALF, queue_id: int = 2
) -> Frame:
    answer = await broker.send("orders", queue_id, body, properties, f="4")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def end_ext(sent: Frame, outcome: str, **changed: str) -> dict[str, str]:
    position = int(str(sent.ext["msgId"])[16:], 16)
    return {
        "producerGroup": "payers",
        "tranStateTableOffset": str(sent.ext["queueOffset"]),
        "commitLogOffset": str(position),
        "commitOrRollback": outcome,
        "fromTransactionCheck": "false",
        "msgId": "U1",
        "transactionId": "U1",
    } | changed


async def end(broker: SingleBroker, sent: Frame, outcome: str, **changed: str) -> Frame:
    return await broker.ask(RequestCode.END_TRANSACTION, end_ext(sent, outcome, **changed))


async def received(broker: SingleBroker, queue_id: int = 2) -> list[bytes]:
    return [record.body for record in messages(await broker.pull("orders", queue_id, 0))]


def open_offsets(broker: SingleBroker) -> list[int]:
    return list(broker.broker.context.machine.state.transactions)
