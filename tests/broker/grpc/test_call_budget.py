"""What calls hold in memory is bounded, until their clients have read the answers."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.protobuf.message import Message as AnyMessage

from broker.grpc import received_messages
from broker.grpc.call import Call
from broker.grpc.call_budget import CallBudget
from broker.grpc.clients import Session
from broker.grpc.dispatcher import DECODED_FACTOR
from broker.grpc.port import GrpcPort
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import ClientType, Code, Encoding
from broker.grpc.telemetry import Telemetry
from broker.grpc.tls import GrpcTls
from broker.limits import CONSUME, GRPC, BodyLimits
from broker.security.credentials import NO_SECURITY
from dledger.wire.endpoint import Endpoint
from tests.broker.grpc.single_service import CLIENT, METADATA, SingleService, message
from tests.broker.grpc.test_calls import ORDERS, READERS, received, receiving
from tests.broker.single_broker import messages

LARGE = b"x" * 50_000


class Context:
    """What grpcio tells of a call, and is told."""

    def __init__(self) -> None:
        self._on_end: list[Callable[[object], None]] = []

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self._on_end.append(callback)

    def end(self) -> None:
        """The client has read the answers, or is gone."""
        for each in self._on_end:
            each(self)

    @staticmethod
    def invocation_metadata() -> Any:
        return tuple(METADATA.items())

    @staticmethod
    def time_remaining() -> float:
        return 3.0

    @staticmethod
    def peer() -> str:
        return f"ipv4:{CLIENT}"


class Port:
    """The port of a service, without a socket."""

    def __init__(self, service: SingleService) -> None:
        self.telemetry = Telemetry(
            service.context, service.service.dispatcher, service.service.clients
        )
        endpoint = Endpoint("127.0.0.1", 8081)
        self.port = GrpcPort(endpoint, GrpcTls(), service.context, lambda: None, NO_SECURITY)
        self.port._service = service.service

    async def stream(self, name: str, request: AnyMessage) -> tuple[list[bytes], Context]:
        context = Context()
        answers = self.port._stream(name)(request.SerializeToString(), context)
        return [each async for each in answers], context

    async def send(self, *sent: df.Message) -> tuple[int, Context]:
        """The code."""
        context = Context()
        body = pb.SendMessageRequest(messages=sent).SerializeToString()
        answer = await self.port._unary("SendMessage")(body, context)
        return pb.SendMessageResponse.FromString(answer).status.code, context


def pulling(offset: int = 0) -> pb.PullMessageRequest:
    queue = df.MessageQueue(topic=ORDERS, id=0)
    return pb.PullMessageRequest(group=READERS, message_queue=queue, offset=offset, batch_size=32)


async def pulled(service: SingleService, offset: int = 0) -> tuple[list[bytes], int]:
    """The bodies, and the offset of the next pull."""
    answers = [
        pb.PullMessageResponse.FromString(each)
        for each in await service.raw("PullMessage", pulling(offset).SerializeToString())
    ]
    bodies = [each.message.body for each in answers if each.HasField("message")]
    return bodies, answers[-1].next_offset


async def stored(service: SingleService, *bodies: bytes, f: str = "0") -> None:
    await service.broker.create_topic("orders", queues=1)
    for body in bodies:
        await service.broker.send("orders", 0, body, f=f)


def held(budget: CallBudget) -> tuple[int, int, int]:
    return budget.calls, budget.bytes, budget.unread


async def test_a_call_counts_until_the_client_has_read_its_answer(service: SingleService) -> None:
    await stored(service, LARGE)
    port, budget = Port(service), service.service.dispatcher.budget
    answers, reading = await port.stream("ReceiveMessage", receiving())
    unread = sum(map(len, answers)) - GRPC.unread_each
    assert unread > len(LARGE) - GRPC.unread_each
    assert held(budget) == (1, 0, unread)
    code, sending = await port.send(message())
    assert (code, budget.calls, budget.unread) == (Code.OK, 2, unread)
    sending.end()
    reading.end()
    assert held(budget) == (0, 0, 0)


async def test_a_call_that_ends_early_gives_back_what_it_holds(service: SingleService) -> None:
    await stored(service)
    port, budget, context = Port(service), service.service.dispatcher.budget, Context()
    request = receiving()
    answers = port.port._stream("ReceiveMessage")(request.SerializeToString(), context)
    waiting = asyncio.ensure_future(anext(aiter(answers)))
    await asyncio.sleep(0.1)
    assert held(budget) == (1, DECODED_FACTOR * request.ByteSize(), 0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert held(budget) == (1, 0, 0)
    context.end()
    assert held(budget) == (0, 0, 0)


async def test_beyond_what_is_unread_large_answers_are_refused_and_sends_are_not(
    service: SingleService,
) -> None:
    await stored(service, LARGE)
    port, budget = Port(service), service.service.dispatcher.budget
    limit = CONSUME.pop_bytes_max + 3 * len(LARGE) // 2
    budget.limits = GRPC._replace(unread_max=limit)
    contexts = [(await port.stream("PullMessage", pulling()))[1] for _ in range(2)]
    (refused,), context = await port.stream("PullMessage", pulling())
    contexts.append(context)
    status = pb.PullMessageResponse.FromString(refused).status
    assert status.code == Code.TOO_MANY_REQUESTS
    assert status.message.endswith(f"bytes of answers are not read yet, the limit is {limit}")
    assert service.service.dispatcher.refusals["busy"] == 1
    for number in range(3):
        code, context = await port.send(message(message_id=f"{number:010}"))
        contexts.append(context)
        assert code == Code.OK
    for context in contexts:
        context.end()
    answers, _ = await port.stream("PullMessage", pulling())
    assert len(answers) == 1 + 4 + 1


async def test_waiting_receives_leave_room_for_other_calls(service: SingleService) -> None:
    await stored(service)
    port, budget = Port(service), service.service.dispatcher.budget
    budget.limits = GRPC._replace(calls_max=3, receives_max=2)
    waiting = [asyncio.ensure_future(port.stream("ReceiveMessage", receiving())) for _ in range(2)]
    await asyncio.sleep(0.1)
    (refused,), context = await port.stream("PullMessage", pulling())
    context.end()
    status = pb.PullMessageResponse.FromString(refused).status
    assert status.code == Code.TOO_MANY_REQUESTS
    assert status.message == "2 receives are handled, the limit is 2"
    code, context = await port.send(message())
    assert code == Code.OK
    context.end()
    for _, context in await asyncio.gather(*waiting):
        context.end()
    assert (budget.calls, budget.receives) == (0, 0)
    answers, _ = await port.stream("PullMessage", pulling())
    assert len(answers) == 1 + 1 + 1


async def test_waiting_receives_with_long_filters_leave_room_for_sends(
    service: SingleService,
) -> None:
    await stored(service)
    wanted = df.FilterExpression(expression=" || ".join(["t" * 60] * 200))
    budget = service.service.dispatcher.budget
    size = DECODED_FACTOR * receiving(filter_expression=wanted).ByteSize()
    budget.limits = GRPC._replace(bytes_max=4 * size, receive_bytes_max=3 * size)
    waiting = [asyncio.ensure_future(received(service, filter_expression=wanted)) for _ in "12345"]
    await asyncio.sleep(0.1)
    assert (await service.send(message())).status.code == Code.OK
    codes = [(await each)[0] for each in waiting]
    assert codes == [Code.MESSAGE_NOT_FOUND] * 3 + [Code.TOO_MANY_REQUESTS] * 2
    assert (budget.bytes, budget.receive_bytes) == (0, 0)


async def test_who_would_receive_is_refused_before_anything_is_received(
    service: SingleService,
) -> None:
    await stored(service, b"hello")
    budget = service.service.dispatcher.budget
    budget.unread = GRPC.unread_max
    assert await received(service) == (Code.TOO_MANY_REQUESTS, [])
    budget.unread = 0
    code, (got,) = await received(service)
    assert (code, got.system_properties.delivery_attempt) == (Code.OK, 1)


async def test_commands_that_a_client_does_not_read_count(service: SingleService) -> None:
    port, budget = Port(service), service.service.dispatcher.budget
    budget.limits = GRPC._replace(unread_max=3 * len(LARGE))
    written = 0

    sessions: list[Session] = []
    command = pb.TelemetryCommand()
    command.verify_message_command.message.body = LARGE

    async def write(_body: bytes) -> None:
        nonlocal written
        written += 1
        await asyncio.sleep(1)

    async def said() -> AsyncIterator[bytes]:
        settings = pb.TelemetryCommand()
        settings.settings.client_type = ClientType.PRODUCER
        yield settings.SerializeToString()
        session = service.service.clients.session("client-1")
        assert session is not None
        sessions.append(session)
        for _ in range(9):
            session.send(lambda: command)
        assert 2 * len(LARGE) < budget.unread <= 3 * len(LARGE)
        await asyncio.sleep(2.5)
        assert budget.unread < 2 * len(LARGE), "the client reads"

    await port.telemetry.serve(Call("Telemetry", METADATA, CLIENT), said(), write)
    assert (written, budget.unread) == (1 + 3, 0)
    sessions[0].send(lambda: command)
    assert budget.unread == 0, "the client is gone"


# --- bodies that are larger than what was sent


async def test_a_pull_ends_before_the_message_with_which_it_inflates_to_too_much(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = CONSUME._replace(pull_bytes_max=1500)
    monkeypatch.setattr("broker.delivery.inflated_bodies.CONSUME", few)
    bodies = [b"a" * 600, b"b" * 600, b"c" * 5000, b"d" * 600]
    await stored(service, *map(zlib.compress, bodies), f="1")
    assert await pulled(service) == (bodies[:2], 2)
    assert await pulled(service, 2) == (bodies[2:3], 3), "one always fits"
    assert await pulled(service, 3) == (bodies[3:], 4)


async def test_who_receives_gets_the_rest_with_the_next_call_and_at_the_first_attempt(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = CONSUME._replace(pop_bytes_max=1800)
    monkeypatch.setattr("broker.pop.receiver.CONSUME", few)
    bodies = [b"a" * 600, b"b" * 600, b"c" * 5000, b"d" * 600]
    await stored(service, *map(zlib.compress, bodies), f="1")
    for expected in (bodies[:2], bodies[2:3], bodies[3:]):
        code, got = await received(service)
        assert (code, [each.body for each in got]) == (Code.OK, expected)
        assert {each.system_properties.delivery_attempt for each in got} == {1}


def zipped(body: bytes, number: int) -> df.Message:
    sent = message(body=gzip.compress(body), message_id=f"{number:010}")
    sent.system_properties.body_encoding = Encoding.GZIP
    return sent


async def test_the_bodies_of_a_send_inflate_to_so_much_in_all_and_no_more(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_messages, "BODY_LIMITS", BodyLimits(inflated_size=1000))
    await stored(service)
    sent = [zipped(b"a" * 400, number) for number in range(3)]
    answer = await service.send(*sent)
    assert answer.status.code == Code.PAYLOAD_TOO_LARGE
    assert "at most 1000 bytes after decompression" in answer.status.message
    assert not messages(await service.broker.pull("orders", 0, 0))
    assert (await service.send(*sent[:2])).status.code == Code.OK


async def test_a_send_counts_as_what_it_inflates_to(service: SingleService) -> None:
    await stored(service)
    budget = service.service.dispatcher.budget
    budget.limits = GRPC._replace(bytes_max=2000)
    answer = await service.send(zipped(b"a" * 1000, 1), zipped(b"a" * 1000, 2))
    assert answer.status.code == Code.TOO_MANY_REQUESTS
    assert "the limit is 2000" in answer.status.message
    assert held(budget) == (0, 0, 0)
    assert (await service.send(zipped(b"a" * 1000, 1))).status.code == Code.OK


# --- properties


def with_properties(count: int, number: int = 0) -> df.Message:
    sent = message(message_id=f"{number:010}")
    for name in range(count):
        sent.user_properties[f"{name:x}"] = ""
    return sent


async def test_a_send_counts_as_what_its_properties_take(service: SingleService) -> None:
    await stored(service)
    budget = service.service.dispatcher.budget
    budget.limits = GRPC._replace(bytes_max=3000)
    many = [with_properties(10, number) for number in range(3)]
    answer = await service.send(*many)
    assert answer.status.code == Code.TOO_MANY_REQUESTS
    assert not messages(await service.broker.pull("orders", 0, 0))
    assert held(budget) == (0, 0, 0)
    assert (await service.send(*many[:2])).status.code == Code.OK


async def test_more_properties_than_can_be_stored_are_not_looked_at(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 MiB of them would hold up the event loop for longer than an election timeout."""
    await stored(service)
    monkeypatch.setattr(received_messages, "received_message", None)
    for sent in (with_properties(20_000), message(keys=["a"] * 20_000)):
        answer = await service.send(sent)
        assert answer.status.code == Code.MESSAGE_PROPERTIES_TOO_LARGE
        assert answer.status.message.startswith("20000 properties and keys take more than 32767")


async def test_between_many_properties_others_get_a_turn_and_all_is_submitted_in_one(
    service: SingleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(service)
    turn, converted, submitted = 0, list[int](), list[int]()
    convert, submit = received_messages.received_message, service.context.ingest.submit

    def converting(*told: Any) -> Any:
        converted.append(turn)
        return convert(*told)

    def submitting(*told: Any) -> Any:
        submitted.append(turn)
        return submit(*told)

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(received_messages, "received_message", converting)
    monkeypatch.setattr(service.context.ingest, "submit", submitting)
    counting = asyncio.ensure_future(turns())
    half = received_messages.PROPERTIES_PER_TURN // 2
    answer = await service.send(*(with_properties(half, number) for number in range(6)))
    counting.cancel()
    assert answer.status.code == Code.OK
    first = converted[0]
    assert [each - first for each in converted] == [0, 0, 1, 1, 2, 2]
    assert submitted == [first + 2] * 6
