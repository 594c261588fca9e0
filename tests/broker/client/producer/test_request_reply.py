"""Requests and replies of the Python client, with a real broker in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import ANY

import pytest

from broker.client.client_identity import ClientIdentity
from broker.client.config import ProducerConfig
from broker.client.consumer.consumer import Consumer
from broker.client.errors import (
    ClosedError,
    IllegalMessageError,
    NoReplyError,
    RefusedError,
)
from broker.client.message import Message
from broker.client.producer.producer import Producer
from broker.client.producer.request_reply import Reply
from broker.client.received_message import ReceivedMessage
from tests.broker.client.real_broker import (
    NAME_SERVER,
    TOPIC,
    break_connections,
    served_broker,
)
from tests.broker.single_broker import SingleBroker
from tests.support.virtual_network import NetworkedLoop

Answering = Callable[[Producer, ReceivedMessage], Coroutine[Any, Any, None]]


def client(number: int) -> Producer:
    identity = ClientIdentity("10.0.0.9", 77, number)
    return Producer(NAME_SERVER, ProducerConfig(), rng=Random(number), identity=identity)


@asynccontextmanager
async def answering(answer: Answering) -> Any:
    """A program that consumes ``TOPIC`` and does ``answer`` with each message."""

    async def serve() -> None:
        consumer = Consumer(NAME_SERVER, "G", {TOPIC: "*"}, start_from="earliest", rng=Random(5))
        async with client(1) as replier, consumer:
            async for message in consumer.messages():
                await answer(replier, message)

    serving = asyncio.ensure_future(serve())
    yield serving
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def in_capitals(replier: Producer, message: ReceivedMessage) -> None:
    await replier.reply(message, message.body.upper(), {"lang": "en"})


async def test_a_request_is_answered_by_who_consumes_it(broker: SingleBroker) -> None:
    async with answering(in_capitals), client(2) as asker:
        replies = await asyncio.gather(
            *(asker.request(Message(TOPIC, body, tags="t")) for body in (b"a", b"b", b"c"))
        )
        assert [reply.body for reply in replies] == [b"A", b"B", b"C"]
        assert replies[0].properties["lang"] == "en"


async def test_a_large_reply_travels_compressed(broker: SingleBroker) -> None:
    async def much(replier: Producer, message: ReceivedMessage) -> None:
        await replier.reply(message, message.body * 100_000)

    async with answering(much), client(2) as asker:
        reply = await asker.request(Message(TOPIC, b"x"))
        assert reply.body == b"x" * 100_000


async def test_no_reply_in_time_is_an_error_that_may_be_tried_again(broker: SingleBroker) -> None:
    async with client(2) as asker:
        with pytest.raises(NoReplyError, match="in 2 s") as caught:
            await asker.request(Message(TOPIC, b"?"), timeout_seconds=2)
        assert caught.value.retriable


async def test_a_reply_that_comes_too_late_disturbs_nothing(broker: SingleBroker) -> None:
    async def slow(replier: Producer, message: ReceivedMessage) -> None:
        await asyncio.sleep(2 if message.body == b"slow" else 0)
        await replier.reply(message, message.body.upper())

    async with answering(slow) as serving, client(2) as asker:
        with pytest.raises(NoReplyError):
            await asker.request(Message(TOPIC, b"slow"), timeout_seconds=1)
        assert await asker.request(Message(TOPIC, b"next")) == Reply(b"NEXT", ANY)
        assert not serving.done()


async def test_a_reply_waits_for_the_asker_to_be_connected_again(broker: SingleBroker) -> None:
    async def after_a_break(replier: Producer, message: ReceivedMessage) -> None:
        break_connections(broker)
        await replier.reply(message, b"still here")

    async with answering(after_a_break), client(2) as asker:
        reply = await asker.request(Message(TOPIC, b"?"))
        assert reply.body == b"still here"


async def test_a_reply_to_a_client_that_is_gone_is_given_up(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    failures: list[NoReplyError] = []

    async with served_broker(loop, tmp_path):

        async def try_to(replier: Producer, message: ReceivedMessage) -> None:
            try:
                await replier.reply(message, b"!")
            except NoReplyError as error:
                failures.append(error)

        async with client(2) as asker:
            with pytest.raises(NoReplyError):
                await asker.request(Message(TOPIC, b"?"), timeout_seconds=0.5)
        async with answering(try_to):
            await asyncio.sleep(5)
    assert "not found" in str(failures[0])


async def test_closing_ends_a_reply_that_is_tried_on(broker: SingleBroker) -> None:
    """Its asker is not there."""
    replies: list[asyncio.Future[None]] = []

    async def begin(replier: Producer, message: ReceivedMessage) -> None:
        replies.append(asyncio.ensure_future(closing.reply(message, b"!")))

    async with client(2) as asker:
        with pytest.raises(NoReplyError):
            await asker.request(Message(TOPIC, b"?"), timeout_seconds=20)
    async with client(3) as closing, answering(begin):
        await asyncio.sleep(10)
    await asyncio.wait(replies)
    assert isinstance(replies[0].exception(), ClosedError)


async def test_a_request_that_waits_without_end_is_replied_to_for_a_while(
    broker: SingleBroker,
) -> None:
    """The property may be anything: no client of ours makes one of so many digits."""

    async with client(2) as asker, client(1) as replier:
        properties = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "nobody", "TTL": "9" * 5000}
        await asker.send(Message(TOPIC, b"?", properties=properties))
        async with Consumer(NAME_SERVER, "G", {TOPIC: "*"}, start_from="earliest") as consumer:
            (message,) = await consumer.next_batch()
            with pytest.raises(NoReplyError, match="in 3 s"):
                await replier.reply(message, b"!")


async def test_what_is_no_request_cannot_be_replied_to(broker: SingleBroker) -> None:
    refused = asyncio.Event()

    async def try_to(replier: Producer, message: ReceivedMessage) -> None:
        with pytest.raises(IllegalMessageError, match="no CORRELATION_ID, REPLY_TO_CLIENT"):
            await replier.reply(message, b"!")
        refused.set()

    async with answering(try_to), client(2) as sender:
        await sender.send(Message(TOPIC, b"no question"))
        await refused.wait()


async def test_a_request_that_cannot_be_sent_fails_as_a_send_does(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with served_broker(loop, tmp_path, auto_create_topics=False):
        asker = client(2)
        async with asker:
            with pytest.raises(RefusedError, match="not exist"):
                await asker.request(Message("absent", b"?"), timeout_seconds=30)
            waiting = asyncio.ensure_future(asker.request(Message(TOPIC, b"?"), 30))
            await asyncio.sleep(1)
        with pytest.raises(ClosedError):
            await waiting
