"""One error counts under one name on all wires, and no answer names a path of the node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.delivery.message_reader import rows
from broker.errors import NoAnswerError
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.remoting.protocol.codes import OUTCOME, OUTCOME_UNKNOWN, RequestCode, ResponseCode
from store.errors import (
    DamagedError,
    DerivedDamageError,
    FatalDiskError,
    OutOfDescriptorsError,
    StoreError,
    UnreadableError,
)
from tests.broker.grpc.single_service import SingleService, message, service_of
from tests.broker.http.site import Site, served
from tests.broker.single_broker import SingleBroker, flip, running_broker
from tests.support.virtual_network import NetworkedLoop


class Wires(NamedTuple):
    """All wires of one broker."""

    broker: SingleBroker
    site: Site
    service: SingleService

    @property
    def refusals(self) -> list[Mapping[str, int]]:
        return [
            self.broker.server.refusals,
            self.site.server._refusals,
            self.service.service.dispatcher.refusals,
        ]


@asynccontextmanager
async def all_wires(loop: NetworkedLoop, data: Path) -> AsyncIterator[Wires]:
    async with (
        running_broker(loop, data) as broker,
        served(broker) as site,
        service_of(broker) as service,
    ):
        yield Wires(broker, site, service)


async def pulled(wires: Wires) -> list[tuple[int, str]]:
    """Code and text of a read of the first message, over each wire."""
    answer = await wires.broker.pull("orders", 0, 0)
    status, document = await wires.site.ask("GET", "/topics/orders/queues/0/messages?offset=0")
    queue = df.MessageQueue(topic=df.Resource(name="orders"), id=0)
    request = pb.PullMessageRequest(group=df.Resource(name="readers"), message_queue=queue)
    body, *_ = await wires.service.raw("PullMessage", request.SerializeToString())
    told = pb.PullMessageResponse.FromString(body).status
    return [
        (answer.code, str(answer.remark)),
        (status, document["error"]),
        (told.code, told.message),
    ]


async def test_a_damaged_record(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders", queues=1)
        await broker.send("orders", 0, b"hello")
    async with all_wires(loop, tmp_path) as wires:
        queue = wires.broker.broker.context.machine.queue("orders", 0)
        assert queue is not None
        ((position, _size, _code),) = rows(queue.read(0, 1))
        flip(tmp_path / f"commitlog/{0:020d}", position + 91)
        answers = await pulled(wires)
    codes, texts = zip(*answers, strict=True)
    assert codes == (ResponseCode.SYSTEM_ERROR, 500, Code.INTERNAL_SERVER_ERROR)
    (text,) = set(texts)
    assert text.startswith("byte ")
    assert " of the commitlog: " in text
    assert str(tmp_path) not in text
    assert wires.refusals == [{"damaged": 1}] * 3
    told = [each.getMessage() for each in caplog.records if each.name == "broker.errors"]
    assert len([each for each in told if f"{tmp_path}/commitlog/" in each]) == 3


async def test_rows_that_are_damaged_and_a_message_behind_them(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with all_wires(loop, tmp_path) as wires:
        await wires.broker.create_topic("orders", queues=1)
        await wires.service.send(message())

        def corrupt(*_: object) -> None:
            raise DerivedDamageError(f"{tmp_path}/consumequeue/orders/0/0", 3, "CRC", 77)

        monkeypatch.setattr(wires.broker.broker.context.reader, "find", corrupt)
        _, texts = zip(*await pulled(wires), strict=True)
    assert set(texts) == {"rows of records from position 77 on: CRC; made again from the log"}
    assert wires.refusals == [{"derived_damage": 1}] * 3


async def test_a_request_on_a_queue_that_there_is_not(loop: NetworkedLoop, tmp_path: Path) -> None:
    async with all_wires(loop, tmp_path) as wires:
        await wires.broker.create_topic("bills", queues=1)
        place = {"consumerGroup": "readers", "topic": "bills", "queueId": "4"}
        asked = {**place, "commitOffset": "0"}
        for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET):
            answer = await wires.broker.ask(code, asked)
            assert answer.code == ResponseCode.SYSTEM_ERROR
        queue = df.MessageQueue(topic=df.Resource(name="bills"), id=4)
        update = pb.UpdateOffsetRequest(group=df.Resource(name="readers"), message_queue=queue)
        done = await wires.service.ask("UpdateOffset", update, pb.UpdateOffsetResponse)
        query = pb.QueryOffsetRequest(message_queue=queue)
        found = await wires.service.ask("QueryOffset", query, pb.QueryOffsetResponse)
        assert done.status.code == found.status.code == Code.NOT_FOUND
        assert found.status.message == answer.remark
        remoting, _, grpc = wires.refusals
        assert remoting == grpc == {"unknown_queue": 2}


NAME = "00000000000000004096"
PATH = f"/data/n0/commitlog/{NAME}"
IO_ERROR = "Input/output error"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DamagedError(PATH, 4, "CRC"), "byte 4100 of the commitlog: CRC"),
        (DamagedError("/data/n0/checkpoint", 4, "CRC"), "byte 4 of checkpoint: CRC"),
        (
            UnreadableError(PATH, 0, f"cannot be opened: [Errno 5] {IO_ERROR}: '{PATH}'"),
            f"byte 4096 of the commitlog: cannot be opened: [Errno 5] {IO_ERROR}: '{NAME}'",
        ),
        (OutOfDescriptorsError(f"{PATH} cannot be opened"), "too many files are open on this node"),
        (FatalDiskError(f"{PATH}: the sync failed"), "the disk of this node failed"),
    ],
)
def test_no_error_of_the_store_tells_a_client_a_path(error: StoreError, told: str) -> None:
    assert error.told == told


async def test_an_unexpected_error_of_a_file_tells_no_path(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(loop, tmp_path) as broker:
        await broker.create_topic("orders", queues=1)

        def failing(*_: object) -> None:
            raise OSError(5, "Input/output error", str(tmp_path / "commitlog"))

        monkeypatch.setattr(broker.broker.context.reader, "offsets", failing)
        ext = {"topic": "orders", "queueId": "0"}
        answer = await broker.ask(RequestCode.GET_MAX_OFFSET, ext)
    assert answer.remark == "OSError: Input/output error"


async def test_a_leader_that_does_not_answer_leaves_the_outcome_open(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with all_wires(loop, tmp_path) as wires:
        await wires.broker.create_topic("orders", queues=1)

        def forwarded(*_: object) -> None:
            raise NoAnswerError("it is gone")

        monkeypatch.setattr(wires.broker.broker.context.ingest, "submit", forwarded)
        answer = await wires.broker.send("orders", 0, b"hello")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.ext == {OUTCOME: OUTCOME_UNKNOWN}
        status, document = await wires.site.post("orders", {"body": "hello"})
        assert (status, document["outcome"]) == (503, "unknown")
        sent = await wires.service.send(message())
        assert sent.status.code == Code.MASTER_PERSISTENCE_TIMEOUT
        assert {answer.remark, document["error"], sent.status.message} == {
            "the leader did not answer, and may have done it: it is gone"
        }
        assert wires.refusals == [{"no_answer": 1}] * 3
