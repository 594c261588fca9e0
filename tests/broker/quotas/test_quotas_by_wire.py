"""Quotas over the other wires, and of accounts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from broker.config.security_config import PERMISSIVE
from broker.grpc.protocol import definition_pb2 as df
from broker.grpc.protocol import service_pb2 as pb
from broker.grpc.protocol.definition_pb2 import Code
from broker.remoting.protocol.codes import RequestCode
from tests.broker.grpc.single_service import SingleService, message, service_of
from tests.broker.http.site import HOST, Site
from tests.broker.http.test_access import PRODUCE, WRITER, basic, guarded_site
from tests.broker.pop.pop_client import Member, sent
from tests.broker.quotas.test_quotas_at_the_doors import set_quota
from tests.broker.single_broker import ADDRESS, SingleBroker, messages, send_ext
from tests.support.virtual_network import NetworkedLoop


async def test_an_account_has_one_quota_over_all_wires_and_others_have_none(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    async with guarded_site(loop, tmp_path) as site:
        broker = site.broker
        await set_quota(broker, f"account.{WRITER.access_key}=produceMessages=2")
        client = broker.client_of(WRITER.access_key, WRITER.secret_key)
        began = loop.time()
        for _ in range(2):
            await client.invoke(
                ADDRESS, RequestCode.SEND_MESSAGE_V2, send_ext("orders", 0), (b"x",), timeout=9
            )
        assert loop.time() - began < 0.1
        body = b'{"body": "a"}'
        status, _ = await site.ask("POST", PRODUCE, body, (HOST, basic(WRITER)))
        assert status == 200
        assert loop.time() - began == pytest.approx(0.5, abs=0.1)
        for _ in range(10):
            await broker.send("orders", 0, b"of the admin")
        assert loop.time() - began < 0.7
        await client.close()


async def test_a_client_of_grpc_waits_for_its_answer(service: SingleService) -> None:
    broker = service.broker
    await broker.create_topic("orders", queues=1)
    await set_quota(broker, "client.client-1=produceMessages=2")
    began = broker.loop.time()
    for number in range(4):
        answer = await service.send(message(message_id=f"{number:010}"))
        assert answer.status.code == Code.OK
    assert broker.loop.time() - began == pytest.approx(1, abs=0.1)
    service.metadata = {"x-mq-client-id": "client-2"}
    began = broker.loop.time()
    await service.send(message(message_id="another"))
    assert broker.loop.time() - began < 0.1


async def test_a_client_of_grpc_that_pulls_waits_for_what_it_was_given_before(
    service: SingleService,
) -> None:
    broker = service.broker
    await sent(broker, 6)
    await set_quota(broker, "client.client-1=consumeMessages=2")

    async def pulled(offset: int) -> float:
        """How long three messages take, in seconds."""
        queue = df.MessageQueue(topic=df.Resource(name="orders"))
        wanted = pb.PullMessageRequest(
            group=df.Resource(name="readers"), message_queue=queue, offset=offset, batch_size=3
        )
        began = broker.loop.time()
        answers = await service.raw("PullMessage", wanted.SerializeToString())
        assert len(answers) == 1 + 3 + 1
        return broker.loop.time() - began

    assert await pulled(0) < 0.1
    assert await pulled(3) == pytest.approx(0.5, abs=0.1)
    service.metadata = {"x-mq-client-id": "client-2"}
    assert await pulled(0) < 0.1


async def test_who_owes_too_much_is_refused_over_each_wire(
    broker: SingleBroker, service: SingleService, site: Site
) -> None:
    await broker.create_topic("orders", queues=1)
    await set_quota(broker, "topic.orders=produceBytes=100")
    for size, expected in ((1000, 200), (1000, 200), (1, 429)):
        status, told = await site.post("orders", {"body": "x" * size, "queue_id": 0})
        assert status == expected
    assert "of debt of the quota of topic orders" in str(told)
    answer = await service.send(message(message_id="0123456789"))
    assert answer.status.code == Code.TOO_MANY_REQUESTS
    assert len(messages(await broker.pull("orders", 0, 0))) == 2


async def test_over_http_who_owes_too_much_is_told_when_to_ask_again(
    broker: SingleBroker, site: Site
) -> None:
    await broker.create_topic("orders", queues=1)
    await set_quota(broker, "topic.orders=produceBytes=100")
    body = orjson.dumps({"body": "x" * 1500, "queue_id": 0})
    path = "/topics/orders/messages"
    assert (await site.ask("POST", path, body))[0] == 200
    near, curl = site.begin("POST", path, len(body))
    near.write(body)
    head = (await curl.parts())[0].decode()
    assert head.startswith("HTTP/1.1 429 ")
    after = next(line for line in head.splitlines() if line.startswith("Retry-After: "))
    seconds = int(after.removeprefix("Retry-After: "))
    assert seconds == 3  # 15 s, less the one that is free and two that were waited off; 10 may be
    await asyncio.sleep(seconds)
    assert (await site.ask("POST", path, body))[0] == 200


async def test_who_receives_by_pop_waits_for_what_it_was_given_before(
    broker: SingleBroker,
) -> None:
    await sent(broker, 6)
    await set_quota(broker, "topic.orders=consumeMessages=2")
    member = Member(broker)
    began = broker.loop.time()
    assert await member.bodies(3) == [b"0", b"1", b"2"]
    assert broker.loop.time() - began < 0.1
    assert await member.bodies(3) == [b"3", b"4", b"5"]
    assert broker.loop.time() - began == pytest.approx(0.5, abs=0.1)


async def test_a_name_that_nobody_checked_has_no_quota(loop: NetworkedLoop, tmp_path: Path) -> None:
    """Who names another's account would use up its quota, where access control is permissive."""
    async with guarded_site(loop, tmp_path, PERMISSIVE) as site, service_of(site.broker) as service:
        broker = site.broker
        await set_quota(broker, f"account.{WRITER.access_key}=produceMessages=1")
        liar = broker.client_of(WRITER.access_key, "not-its-secret")
        signed = f"MQv2-HMAC-SHA1 Credential={WRITER.access_key}, SignedHeaders=x-mq-date-time, "
        service.metadata = {"authorization": f"{signed}Signature=00", "x-mq-date-time": "now"}
        began = loop.time()
        for number in range(5):
            await liar.invoke(
                ADDRESS, RequestCode.SEND_MESSAGE_V2, send_ext("orders", 0), (b"x",), timeout=9
            )
            answer = await service.send(message(message_id=f"{number:010}"))
            assert answer.status.code == Code.OK
        assert loop.time() - began < 0.1
        await liar.close()


async def test_who_is_allowed_by_its_address_uses_up_nobodys_quota(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Nobody looks whether the account that it names is its own."""
    async with guarded_site(loop, tmp_path) as site, service_of(site.broker) as service:
        broker = site.broker
        await set_quota(broker, f"account.{WRITER.access_key}=produceMessages=1")
        change = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        assert (await broker.ask(change, {"globalWhiteAddrs": "127.0.0.1"})).code == 0
        signed = f"MQv2-HMAC-SHA1 Credential={WRITER.access_key}, SignedHeaders=x-mq-date-time, "
        service.metadata = {"authorization": f"{signed}Signature=00", "x-mq-date-time": "now"}
        began = loop.time()
        for number in range(5):
            answer = await service.send(message(message_id=f"{number:010}"))
            assert answer.status.code == Code.OK
        assert loop.time() - began < 0.1
