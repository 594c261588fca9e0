"""The HTTP port of a NameServer: what it tells of what brokers have registered."""

from __future__ import annotations

import asyncio

from broker.http.port import runner_of
from broker.limits import HTTP
from broker.nameserver.http_server import NameServerHttp
from broker.nameserver.server import NameServer
from broker.prometheus import catalog
from broker.remoting.protocol.codes import RequestCode
from broker.security.access_control import AccessControl
from broker.security.cluster_secrets import ClusterSecrets
from tests.broker.http.site import Curl
from tests.broker.http.test_access import ADMIN
from tests.broker.nameserver.tool import N0, N1, Tool, broker_ext, table
from tests.broker.prometheus.pages import Page
from tests.broker.single_broker import NOW_MS
from tests.support.virtual_network import NetworkedLoop


async def test_metrics_tell_what_is_registered_and_refused(loop: NetworkedLoop) -> None:
    nameserver = NameServer(loop, "10.0.0.1", 9876)
    await nameserver.start()
    port = NameServerHttp(nameserver, loop, "10.0.0.1", 8079, clock=loop.time)
    runner = runner_of(port.app(), HTTP)
    await runner.setup()
    assert runner.server is not None
    make = runner.server

    async def get(path: str) -> tuple[bytes, str]:
        curl = Curl(loop)
        near, _ = loop.join(curl, make(), 8079)
        near.write(f"GET {path} HTTP/1.1\r\nHost: 10.0.0.1\r\nConnection: close\r\n\r\n".encode())
        head, body = await curl.parts()
        return head.splitlines()[0], body.decode()

    leader, follower = Tool(loop), Tool(loop)
    await leader.register(table("T", "U"), **broker_ext(N0, "0"))
    await follower.register(table(), **broker_ext(N1, "2", brokerName="broker-b"))
    await leader.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"})
    status, text = await get("/metrics")
    assert status.endswith(b"200 OK")
    told = Page.parse(text)
    expected = {metric.name for metric in catalog.ON_NAMESERVER}
    assert {name for name in told.kinds if not name.startswith("process_")} == expected
    assert told["dledger_nameserver_brokers"] == 2
    assert told["dledger_nameserver_broker_groups"] == 2
    assert told["dledger_nameserver_broker_groups_without_leader"] == 1
    assert told["dledger_nameserver_topics"] == 2
    refused = told.values("dledger_refused_requests_total")
    assert refused == {frozenset({("port", "remoting"), ("reason", "topic_not_exist")}): 1}
    for path in ("/livez", "/readyz", "/healthz"):
        status, _ = await get(path)
        assert status.endswith(b"200 OK")
    assert (await get("/nowhere"))[0].endswith(b"404 Not Found")
    await asyncio.gather(leader.close(), follower.close())
    await runner.cleanup()
    await nameserver.stop()


async def test_with_access_control_metrics_need_an_account_and_probes_do_not(
    loop: NetworkedLoop,
) -> None:
    secrets = ClusterSecrets((b"\x07" * 32,), ADMIN)
    access = AccessControl(enforcing=True, secrets=secrets, now_ms=lambda: NOW_MS)
    nameserver = NameServer(loop, "10.0.0.1", 9876)
    port = NameServerHttp(nameserver, loop, "10.0.0.1", 8079, clock=loop.time, access=access)
    runner = runner_of(port.app(), HTTP)
    await runner.setup()
    assert runner.server is not None
    make = runner.server

    async def status(path: str, *headers: str) -> bytes:
        curl = Curl(loop)
        near, _ = loop.join(curl, make(), 8079)
        lines = (f"GET {path} HTTP/1.1", "Host: 10.0.0.1", "Connection: close", *headers, "", "")
        near.write("\r\n".join(lines).encode())
        head, _ = await curl.parts()
        return head.splitlines()[0]

    keys = f"Authorization: {ADMIN.http_header()['Authorization']}"
    assert (await status("/metrics")).endswith(b"401 Unauthorized")
    assert (await status("/metrics", keys)).endswith(b"200 OK")
    for path in ("/livez", "/readyz", "/healthz"):
        assert (await status(path)).endswith(b"200 OK")
    await runner.cleanup()
