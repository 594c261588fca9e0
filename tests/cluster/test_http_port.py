"""The HTTP port of a real process: what it keeps in memory, and whom it answers."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.cluster.running_cluster import RunningCluster, start_cluster

MIB = 1 << 20
BODY_SIZE = 4 * MIB
KEPT_MAX = 200 * MIB
"""More than the budget of the port: without one, what is sent here are more than 400 MiB."""

GIVEN_BACK_SECONDS = 60.0


class HttpNode:
    """The only node of a group."""

    def __init__(self, cluster: RunningCluster) -> None:
        (node,) = cluster.view().nodes
        assert node.http is not None
        assert node.pid is not None
        host, _, port = node.http.partition(":")
        self.address = host, int(port)
        self._status = Path(f"/proc/{node.pid}/status")

    def memory(self, key: str) -> int:
        """Bytes: VmRSS now, VmHWM at most so far."""
        found = re.search(rf"^{key}:\s+(\d+) kB$", self._status.read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) << 10

    def upload(self, sent: int) -> socket.socket:
        """Begins a request, and sends as much of its body as the node takes at once."""
        connection = socket.create_connection(self.address)
        connection.sendall(b"POST /topics/orders/messages HTTP/1.1\r\nHost: localhost\r\n")
        connection.sendall(f'Content-Length: {BODY_SIZE}\r\n\r\n{{"body": "'.encode())
        connection.settimeout(5)
        with suppress(OSError):  # it may be refused
            connection.sendall(b"x" * sent)
        return connection

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: str | None = None
    ) -> tuple[int, object]:
        with closing(http.client.HTTPConnection(*self.address, timeout=30)) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    running = start_cluster(tmp_path_factory.mktemp("http") / "data", nodes=1)
    try:
        yield HttpNode(running)
    finally:
        running.stop()


def test_memory_of_uploads_is_bounded_and_comes_back(node: HttpNode) -> None:
    assert node.ask("POST", "/topics/orders/messages", body='{"body": "first"}')[0] == 200
    before = node.memory("VmRSS")
    for _ in range(300):
        node.upload(BODY_SIZE - 100).close()
    assert node.memory("VmHWM") - before < KEPT_MAX
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(node.upload(BODY_SIZE - 100))
        assert node.memory("VmHWM") - before < KEPT_MAX
        # Small messages go on.
        assert node.ask("POST", "/topics/orders/messages", body='{"body": "next"}')[0] == 200
    ends_at = time.monotonic() + GIVEN_BACK_SECONDS
    while node.memory("VmRSS") - before > KEPT_MAX / 2:
        assert time.monotonic() < ends_at, f"kept: {(node.memory('VmRSS') - before) / MIB} MiB"
        time.sleep(0.1)
    body = json.dumps({"body": "x" * (BODY_SIZE - 100)})
    assert node.ask("POST", "/topics/orders/messages", body=body)[0] == 200


def test_a_page_of_another_site_can_do_nothing(node: HttpNode, tmp_path: Path) -> None:
    """What a browser sends for a page, header by header."""
    own = "{}:{}".format(*node.address)
    target = tmp_path / "snapshot"
    posts = {
        "/topics/stolen/messages": '{"body": "a"}',
        "/snapshot": json.dumps({"directory": str(target)}),
    }
    foreign = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    for path, body in posts.items():
        assert node.ask("POST", path, foreign, body)[0] == 403
        assert node.ask("POST", path, foreign | {"Origin": "null"}, body)[0] == 403
        assert node.ask("POST", path, {"Sec-Fetch-Site": "cross-site"}, body)[0] == 403
        assert node.ask("POST", path, rebound, body)[0] == 403
        own_page = {"Origin": f"http://{own}", "Content-Type": "text/plain"}
        assert node.ask("POST", path, own_page, body)[0] == 415
    for path in ("/topics", "/topics/orders/queues/0/messages", "/status", "/nodes", "/groups"):
        assert node.ask("GET", path, {"Host": "evil.example"})[0] == 403
    assert not target.exists()
    status, topics = node.ask("GET", "/topics", {"Host": "localhost"})
    assert status == 200
    assert isinstance(topics, dict)
    assert "stolen" not in {topic["name"] for topic in topics["topics"]}
    # curl -d says that it sends a form.
    curl = {"Content-Type": "application/x-www-form-urlencoded"}
    assert node.ask("POST", "/topics/orders/messages", curl, '{"body": "a"}')[0] == 200
