"""The HTTP port of a NameServer: what it tells of what brokers have registered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.config.config_file import read_name_server_config
from broker.http.port import runner_of
from broker.limits import HTTP
from broker.nameserver.http_server import NameServerHttp
from broker.nameserver.server import NameServer
from broker.prometheus import catalog
from broker.remoting.protocol.codes import RequestCode
from tests.broker.http.site import Curl
from tests.broker.http.test_access import WRITER
from tests.broker.nameserver.tool import N0, N1, Tool, broker_ext, table
from tests.broker.prometheus.pages import Page
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


async def test_it_answers_to_its_names_and_asks_nobody_for_an_account(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Prometheus scrapes it as it does nodes, by the name of a Service and with an account of
    theirs, which a NameServer does not know."""
    path = tmp_path / "namesrv.toml"
    path.write_text(
        'insecure = true\nhost = "10.0.0.1"\nhttp_hosts = ["dledger-namesrv", "ns.example.com"]\n'
    )
    config = read_name_server_config(str(path), {}, {})
    nameserver = NameServer(loop, config.host, 9876)
    port = NameServerHttp(
        nameserver, loop, config.host, 8079, clock=loop.time, http_hosts=config.http_hosts
    )
    runner = runner_of(port.app(), HTTP)
    await runner.setup()
    assert runner.server is not None
    make = runner.server

    async def status(path: str, host: str) -> int:
        curl = Curl(loop)
        near, _ = loop.join(curl, make(), 8079)
        keys = f"Authorization: {WRITER.http_header()['Authorization']}"
        lines = (f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", keys, "", "")
        near.write("\r\n".join(lines).encode())
        head, _ = await curl.parts()
        return int(head.split()[1])

    for each in ("/metrics", "/livez", "/readyz", "/healthz"):
        for host in ("10.0.0.1", "localhost", "dledger-namesrv:8079", "ns.example.com"):
            assert await status(each, host) == 200
        assert await status(each, "evil.example") == 403
    await runner.cleanup()
