"""Who may write to a NameServer: the brokers of the cluster, and its first admin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from broker.nameserver.server import READS, NameServer
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode
from broker.remoting.protocol.frame import Frame
from broker.security.access_control import AccessControl
from broker.security.cluster_secrets import CLUSTER_ACCESS_KEY, ClusterSecrets
from broker.security.credentials import NO_SECURITY, ClientSecurity, Credentials
from broker.server.name_server_registration import Announcement, Registrar
from tests.support.virtual_network import NetworkedLoop

NAMESRV = "10.0.0.1:9876"
ADMIN = Credentials("admin-1234", "admin-secret")
SECRETS = ClusterSecrets((b"\x07" * 32, b"\x06" * 32), ADMIN)
CLUSTER = ClientSecurity(SECRETS.credentials())


@asynccontextmanager
async def running_name_server(
    loop: NetworkedLoop, *, enforcing: bool = True
) -> AsyncIterator[NameServer]:
    access = AccessControl(enforcing=enforcing, secrets=SECRETS, now_ms=lambda: 0)
    nameserver = NameServer(loop, "10.0.0.1", 9876, access=access)
    await nameserver.start()
    yield nameserver
    await nameserver.stop()


@pytest.fixture
async def nameserver(loop: NetworkedLoop) -> AsyncIterator[NameServer]:
    async with running_name_server(loop) as nameserver:
        yield nameserver


async def ask(loop: NetworkedLoop, security: ClientSecurity, code: int, **ext: str) -> Frame:
    client = RemotingClient(loop, security=security)
    answer = await client.invoke(NAMESRV, code, ext)
    await client.close()
    return answer


def denied(answer: Frame) -> bool:
    return answer.code == 1 and (answer.remark or "").startswith("AclException: ")


def announcement() -> Announcement:
    return Announcement(
        cluster="DefaultCluster",
        broker_name="broker-a",
        broker_id=0,
        address="10.0.0.2:10911",
        http_address="10.0.0.2:8080",
        term=1,
        data_version={"counter": 1, "timestamp": 1},
        topics={},
    )


async def test_whoever_is_nobody_may_read_and_not_write(
    loop: NetworkedLoop, nameserver: NameServer
) -> None:
    for code in nameserver._handlers():
        answer = await ask(loop, NO_SECURITY, code)
        assert denied(answer) == (code not in READS), code
    wrong = ClientSecurity(Credentials(CLUSTER_ACCESS_KEY, "some-other-secret"))
    assert denied(await ask(loop, wrong, RequestCode.REGISTER_BROKER))
    assert denied(await ask(loop, wrong, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="t"))


@pytest.mark.parametrize("secret", SECRETS.secrets)
async def test_a_broker_of_the_cluster_registers_with_either_secret(
    loop: NetworkedLoop, nameserver: NameServer, secret: bytes
) -> None:
    security = ClientSecurity(ClusterSecrets((secret,)).credentials())
    registrar = Registrar(loop, [NAMESRV], announcement, security=security)
    registrar.start()
    await asyncio.sleep(1)
    assert registrar.states == {NAMESRV: "registered"}
    answer = await ask(loop, NO_SECURITY, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert list(orjson.loads(answer.body)["brokerAddrTable"]) == ["broker-a"]
    await registrar.stop()


async def test_a_broker_of_another_cluster_is_refused_and_says_so(
    loop: NetworkedLoop, nameserver: NameServer
) -> None:
    for security in (
        NO_SECURITY,
        ClientSecurity(ClusterSecrets((b"\x09" * 32,)).credentials()),
    ):
        registrar = Registrar(loop, [NAMESRV], announcement, security=security)
        registrar.start()
        await asyncio.sleep(1)
        assert "AclException" in registrar.states[NAMESRV]
        await registrar.stop()
    assert not nameserver.routes.cluster_info()["brokerAddrTable"]


async def test_the_first_admin_may_write_too(loop: NetworkedLoop, nameserver: NameServer) -> None:
    key = {"namespace": "n", "key": "k", "value": "v"}
    for security in (CLUSTER, ClientSecurity(ADMIN)):
        assert (await ask(loop, security, RequestCode.PUT_KV_CONFIG, **key)).code == 0
    found = await ask(loop, NO_SECURITY, RequestCode.GET_KV_CONFIG, namespace="n", key="k")
    assert found.ext["value"] == "v"


async def test_permissive_counts_and_lets_brokers_register_that_do_not_sign_yet(
    loop: NetworkedLoop,
) -> None:
    async with running_name_server(loop, enforcing=False):
        registrar = Registrar(loop, [NAMESRV], announcement)
        registrar.start()
        await asyncio.sleep(1)
        assert registrar.states == {NAMESRV: "registered"}
        await registrar.stop()
