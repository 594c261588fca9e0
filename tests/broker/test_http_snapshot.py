"""A node makes a snapshot of itself on request, or says in one line why not."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from store.osfiles import OsFileSystem
from store.verify import verify_replica
from tests.broker.harness import NOW_MS
from tests.broker.test_http import Site, with_site


def test_a_snapshot_has_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    target = str(tmp_path / "snap/broker-a/n0")

    async def scenario(site: Site) -> None:
        await site.broker.create_topic("orders", 1)
        for number in range(5):
            await site.post("orders", {"body": f"line {number}"})
        request = orjson.dumps({"directory": target})
        status, manifest = await site.ask("POST", "/snapshot", request)
        assert status == 200
        node = site.broker.broker.context.node
        assert manifest["commit_index"] == node.applied_index
        assert (manifest["directory"], manifest["node"]) == (target, "n0")
        assert manifest["time_ms"] >= NOW_MS
        status, answer = await site.ask("POST", "/snapshot", request)
        assert (status, answer) == (409, {"error": f"{target}: not empty; name a new directory"})
        await site.post("orders", {"body": "the broker goes on"})

    with_site(scenario, tmp_path / "data")
    report = verify_replica(OsFileSystem(), target)
    assert (report.findings, report.messages) == ([], 5)


@pytest.mark.parametrize(
    ("body", "status", "what"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, '{"directory": "/absolute/path"}'),
        (b'{"directory": 7}', 400, '{"directory": "/absolute/path"}'),
        (b'{"directory": "snap"}', 409, "absolute path"),
        (b'{"directory": "/proc/nothing/here"}', 409, "/proc/nothing/here"),
    ],
)
def test_a_bad_request_is_refused(tmp_path: Path, body: bytes, status: int, what: str) -> None:
    async def scenario(site: Site) -> None:
        found, answer = await site.ask("POST", "/snapshot", body)
        assert found == status
        assert what in answer["error"]

    with_site(scenario, tmp_path)
