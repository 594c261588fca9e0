"""``auto_renew``: a message stays with its consumer while that works, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.grpc import renewals
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.grpc.renewals import HEARTBEATS_SECONDS, LOOK_SECONDS
from broker.limits import GRPC, STATE
from broker.pop.receipt_handle import ReceiptHandle, tag_of
from broker.pop.renewed_receipts import (
    client_hash,
    is_receipt_of,
    nonces_of,
    not_renewable,
    owner_of,
    renewable,
    renewed,
    was_answered,
)
from broker.state.pop_queues import PopDelivery
from tests.broker.grpc.single_service import SingleService, message, running_service
from tests.broker.grpc.test_calls import READERS, acked, received
from tests.support.virtual_network import NetworkedLoop

HEARTBEAT = pb.HeartbeatRequest(group=READERS, client_type=df.ClientType.PUSH_CONSUMER)


@asynccontextmanager
async def one_message(loop: NetworkedLoop, data: Path) -> AsyncIterator[SingleService]:
    """A service whose clock runs, with one message to receive."""
    async with running_service(loop, data, clock_runs=True) as service:
        await service.broker.create_topic("orders", queues=1)
        await service.send(message())
        yield service


async def beat(service: SingleService) -> int:
    answer = await service.ask("Heartbeat", HEARTBEAT, pb.HeartbeatResponse)
    return answer.status.code


async def works(service: SingleService, seconds: float) -> None:
    """The consumer says that it is there, as clients do every ten seconds."""
    for _ in range(int(seconds / 10)):
        assert await beat(service) == Code.UNRECOGNIZED_CLIENT_TYPE
        await asyncio.sleep(10)


async def test_a_message_is_prolonged_while_its_consumer_works(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with one_message(loop, tmp_path) as service:
        connected = {"client-1"}
        service.service.renewals._members = lambda _group: connected
        _, (got,) = await received(service, auto_renew=True)
        await asyncio.sleep(4 * GRPC.renewed_seconds)
        assert (await received(service))[0] == Code.MESSAGE_NOT_FOUND
        assert len(service.service.renewals) == 1
        assert (await acked(service, got.system_properties.receipt_handle)).status.code == Code.OK
        await service.send(message(message_id="2"))
        await received(service, auto_renew=True)
        connected.clear()
        await asyncio.sleep(2 * GRPC.renewed_seconds)
        assert (await received(service))[0] == Code.OK
        assert len(service.service.renewals) == 0


@pytest.mark.parametrize("seconds", [LOOK_SECONDS + 1, 200], ids=["one renewal", "many"])
async def test_the_next_leader_renews_on_and_takes_the_first_handle(
    loop: NetworkedLoop, tmp_path: Path, seconds: float
) -> None:
    """The consumer has lost its stream with the node that died: it only sends heartbeats."""
    async with one_message(loop, tmp_path) as service:
        service.service.renewals._members = lambda _group: {"client-1"}
        _, (got,) = await received(service, auto_renew=True, attempt_id="a")
        await asyncio.sleep(seconds)
    now_ms = service.broker.wall_ms()
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        service.broker.now_ms = now_ms
        await works(service, 4 * GRPC.renewed_seconds)
        assert (await received(service))[0] == Code.MESSAGE_NOT_FOUND
        handle = got.system_properties.receipt_handle
        assert (await acked(service, handle)).status.code == Code.OK
        assert (await acked(service, handle)).status.code == Code.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize("seconds", [1, 40, 200], ids=["at once", "renewed", "renewed often"])
async def test_the_same_attempt_brings_again_what_was_prolonged(
    loop: NetworkedLoop, tmp_path: Path, seconds: int
) -> None:
    """The answer was lost. The leader does not know, and prolongs on."""
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        await service.broker.create_topic("orders", queues=1)
        service.service.renewals._members = lambda _group: {"client-1"}
        await service.send(message(message_id="1"), message(message_id="2"))
        _, first = await received(service, auto_renew=True, attempt_id="a")
        await asyncio.sleep(seconds)
        assert (await received(service, auto_renew=True, attempt_id="b")) == (
            Code.MESSAGE_NOT_FOUND,
            [],
        )
        code, again = await received(service, auto_renew=True, attempt_id="a")
        ids = [[each.system_properties.message_id for each in got] for got in (first, again)]
        assert (code, ids) == (Code.OK, [["1", "2"], ["1", "2"]])
        handles = (again[0].system_properties, first[1].system_properties)
        answer = await acked(service, *(each.receipt_handle for each in handles))
        assert answer.status.code == Code.OK


@pytest.mark.parametrize("lost_by", ["the leader died", "the call ended"])
async def test_what_may_never_have_reached_its_consumer_comes_again_after_a_minute(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_by: str
) -> None:
    """The consumer is there, and asks for others by other attempts. A leader cannot know."""
    if lost_by == "the leader died":
        async with running_service(loop, tmp_path, clock_runs=True) as service:
            await service.broker.create_topic("orders", queues=1)
            await service.send(message())
            assert len((await received(service, auto_renew=True))[1]) == 1
        now_ms = service.broker.wall_ms()
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        if lost_by == "the leader died":
            service.broker.now_ms = now_ms
        else:
            await service.broker.create_topic("orders", queues=1)
            await service.send(message())
            with monkeypatch.context() as end:
                end.setattr("broker.grpc.consume_calls.Renewals.given", _ends_the_call)
                with pytest.raises(asyncio.CancelledError):
                    await received(service, auto_renew=True)
        await works(service, GRPC.renewed_seconds - 2 * LOOK_SECONDS)
        assert (await received(service))[0] == Code.MESSAGE_NOT_FOUND
        await works(service, 4 * LOOK_SECONDS)
        assert len((await received(service))[1]) == 1


async def test_what_an_older_program_has_renewed_without_an_answer_is_not_renewed(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("broker.pop.auto_renewal.renewed", _renewed_without_an_answer)
        async with one_message(loop, tmp_path) as service:
            service.service.renewals._members = lambda _group: {"client-1"}
            assert len((await received(service, auto_renew=True))[1]) == 1
            await asyncio.sleep(2 * LOOK_SECONDS)
        now_ms = service.broker.wall_ms()
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        service.broker.now_ms = now_ms
        await works(service, GRPC.renewed_seconds)
        assert len((await received(service))[1]) == 1


async def test_what_was_given_is_known_however_much_is_given_and_acknowledged_before_and_after(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "STATE", STATE._replace(pop_deliveries_max=3))
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        await service.broker.create_topic("orders", queues=1)
        await beat(service)

        async def consumes(*numbers: int) -> None:
            for number in numbers:
                await service.send(message(message_id=str(number)))
                _, (got,) = await received(service, auto_renew=True)
                await acked(service, got.system_properties.receipt_handle)

        await consumes(*range(5))
        await service.send(message(message_id="slow"))
        assert len((await received(service, auto_renew=True))[1]) == 1
        await asyncio.sleep(2 * LOOK_SECONDS)
        await consumes(*range(10, 20))
        await works(service, 20 * GRPC.renewed_seconds)
        assert (await received(service))[0] == Code.MESSAGE_NOT_FOUND


def _renewed_without_an_answer(nonce: int) -> int:
    return nonce | 0b11 << 31


def _ends_the_call(*_given: object) -> None:
    raise asyncio.CancelledError


async def test_what_an_earlier_leader_has_prolonged_is_prolonged_for_hours(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with one_message(loop, tmp_path) as service:
        service.service.renewals._members = lambda _group: {"client-1"}
        await received(service, auto_renew=True)
        await asyncio.sleep(2 * GRPC.renewed_seconds)
    now_ms = service.broker.wall_ms()
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        service.broker.now_ms = now_ms
        await works(service, 20 * GRPC.renewed_seconds)
        assert (await received(service))[0] == Code.MESSAGE_NOT_FOUND


async def test_a_heartbeat_counts_for_its_client_and_for_a_while(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with one_message(loop, tmp_path) as service:
        _, (got,) = await received(service, auto_renew=True)
        await works(service, GRPC.renewed_seconds)
        service.metadata = {"x-mq-client-id": "client-2"}
        await works(service, HEARTBEATS_SECONDS + GRPC.renewed_seconds)
        code, (again,) = await received(service)
        assert (code, again.body) == (Code.OK, got.body)
        answer = await acked(service, got.system_properties.receipt_handle)
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE


async def test_what_was_not_received_so_is_not_prolonged(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with one_message(loop, tmp_path) as service:
        service.service.renewals._members = lambda _group: {"client-1"}
        await received(service)
        await asyncio.sleep(31)
        assert (await received(service))[0] == Code.OK


async def test_prolonging_has_an_end(
    loop: NetworkedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        await service.broker.create_topic("orders", queues=1)
        service.service.renewals._members = lambda _group: {"client-1"}
        shorter = GRPC._replace(renewed_seconds_max=300.0)
        monkeypatch.setattr("broker.grpc.renewals.GRPC", shorter)
        await service.send(message(message_id="1"), message(message_id="2"))
        assert len((await received(service, auto_renew=True))[1]) == 2
        await asyncio.sleep(300)
        assert len(service.service.renewals) == 2
        await asyncio.sleep(GRPC.renewed_seconds + 2 * LOOK_SECONDS)
        assert len((await received(service))[1]) == 2
        assert len(service.service.renewals) == 0


async def test_heartbeats_that_are_remembered_have_a_number(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = service.service.renewals
    monkeypatch.setattr("broker.grpc.renewals.GRPC", GRPC._replace(streams_max=3))
    for number in range(9):
        renewals.heard("readers", f"client-{number}")
    assert len(renewals._heard) == 3
    await asyncio.sleep(HEARTBEATS_SECONDS + 1)
    renewals.heard("readers", "another")
    assert [*renewals._heard] == [("readers", "another")]


async def test_a_look_finds_the_clients_of_a_group_once_and_of_idle_groups_never(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Queues and clients are many."""
    async with running_service(loop, tmp_path, clock_runs=True) as service:
        await service.broker.create_topic("orders", queues=4)
        await service.send(*(message(message_id=str(each)) for each in range(8)))
        idle = df.Resource(name="idle")
        for group in (READERS, idle):
            _, got = await received(service, group=group, auto_renew=True, attempt_id="a")
            queues = {each.system_properties.queue_id for each in got}
            assert len(queues) > 1
        handles = [each.system_properties.receipt_handle for each in got]
        assert (await acked(service, *handles, group=idle)).status.code == Code.OK
        asked: list[str] = []

        def members(group: str) -> set[str]:
            asked.append(group)
            return {"client-1"}

        service.service.renewals._members = members
        await asyncio.sleep(3 * LOOK_SECONDS + 1)
        assert asked == ["readers"] * 3
        assert len(service.service.renewals) == 8


def test_a_nonce_says_whose_delivery_it_is_and_whether_it_is_renewed() -> None:
    nonce = renewable(0x7FFF_FFFF_1234_5678, "client-1")
    assert 0 < nonce < 1 << 63
    assert owner_of(nonce) == client_hash("client-1") != client_hash("client-2")
    handle = ReceiptHandle(tag_of(nonce), 1_000, 60_000, "broker-a", 0, 7)
    assert is_receipt_of(handle, PopDelivery(61_000, 1, nonce))
    assert not is_receipt_of(handle, PopDelivery(62_000, 1, nonce))
    unknown = _renewed_without_an_answer(nonce)
    known = renewed(unknown)
    assert [*map(was_answered, (nonce, unknown, known))] == [False, False, True]
    assert renewed(nonce) == known
    assert nonces_of(nonce) == nonces_of(unknown) == nonces_of(known) >= {nonce, unknown, known}
    for delivery in (PopDelivery(91_000, 1, unknown), PopDelivery(121_000, 1, known)):
        assert owner_of(delivery.nonce) == client_hash("client-1")
        assert is_receipt_of(handle, delivery)
        assert not is_receipt_of(handle._replace(tag=handle.tag ^ 1), delivery)
    assert not is_receipt_of(handle, PopDelivery(121_000, 2, renewable(99, "client-1")))


def test_what_is_not_renewed_is_never_marked_so() -> None:
    nonce = not_renewable(0x7FFF_FFFF_1234_5678)
    handle = ReceiptHandle(tag_of(nonce), 1_000, 60_000, "broker-a", 0, 7)
    assert is_receipt_of(handle, PopDelivery(61_000, 1, nonce))
    assert not is_receipt_of(handle, PopDelivery(62_000, 2, nonce))
    assert not_renewable(1 << 32) > 0
