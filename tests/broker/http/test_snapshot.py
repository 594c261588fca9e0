"""A node makes a snapshot of itself on request, or says in one line why not."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.limits import HTTP, HttpLimits
from store.io.os_filesystem import OsFileSystem
from store.verify import verify_replica
from tests.broker.http.site import Site, running_site
from tests.broker.single_broker import NOW_MS
from tests.support.virtual_network import NetworkedLoop


async def take(site: Site, directory: Path | str | None = None) -> tuple[int, Any]:
    request = {} if directory is None else {"directory": str(directory)}
    return await site.ask("POST", "/snapshot", orjson.dumps(request))


def files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


async def test_a_snapshot_has_all_that_was_acknowledged_before(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    target = str(tmp_path / "snap/broker-a/n0")

    async with running_site(
        loop, tmp_path / "data", snapshot_dirs=(str(tmp_path / "snap"),)
    ) as site:
        await site.broker.create_topic("orders", 1)
        for number in range(5):
            await site.post("orders", {"body": f"line {number}"})
        status, manifest = await take(site, target)
        assert status == 200
        node = site.broker.broker.context.node
        assert manifest["commit_index"] == node.applied_index
        assert (manifest["directory"], manifest["node"]) == (target, "n0")
        assert manifest["time_ms"] >= NOW_MS
        status, answer = await take(site, target)
        assert (status, answer) == (409, {"error": f"{target}: not empty; name a new directory"})
        await site.post("orders", {"body": "the broker goes on"})
    report = verify_replica(OsFileSystem(), target)
    assert (report.findings, report.messages) == ([], 5)


async def test_a_snapshot_for_whom_nobody_waits_any_more_is_whole(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    target = tmp_path / "data/snapshots/new"

    async with running_site(loop, tmp_path / "data") as site:
        await site.post("orders", {"body": "a"})
        request = orjson.dumps({"directory": str(target)})
        connection, curl = site.begin("POST", "/snapshot", len(request))
        connection.write(request)
        while not target.exists():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        assert not (target / "manifest.json").exists()
        connection.abort()
        await curl.parts()
        await asyncio.sleep(1)
        assert (await take(site))[0] == 200
    assert verify_replica(OsFileSystem(), str(target)).findings == []


async def test_a_snapshot_of_which_nobody_knows_is_removed(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Its links keep files that the node has expired, and the ninth is refused."""
    own = tmp_path / "data/snapshots"

    async with running_site(loop, tmp_path / "data") as site:
        await site.post("orders", {"body": "a"})
        connection, curl = site.begin("POST", "/snapshot", 2)
        connection.write(b"{}")
        while not own.exists():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
        connection.abort()
        await curl.parts()
        await asyncio.sleep(1)
        assert [*own.iterdir()] == []
        status, answer = await take(site)
        assert status == 200
        assert [str(each) for each in own.iterdir()] == [answer["directory"]]


async def test_without_a_directory_a_node_makes_one_of_its_own(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    made = []

    async with running_site(loop, tmp_path / "data", limits=HttpLimits(snapshots_max=3)) as site:
        await site.post("orders", {"body": "a"})
        for _ in range(2):
            status, answer = await take(site)
            assert status == 200, answer
            made.append(answer["directory"])
        status, answer = await take(site, tmp_path / "data/snapshots/today/n0")
        assert (status, answer["directory"]) == (200, str(tmp_path / "data/snapshots/today/n0"))
        status, answer = await take(site)
        assert status == 409
        assert "snapshots holds 3 snapshots; remove some of them" in answer["error"]
    assert {Path(each).parent for each in made} == {tmp_path / "data/snapshots"}
    assert made[0] != made[1]
    for each in (*made, str(tmp_path / "data")):
        assert verify_replica(OsFileSystem(), each).findings == []


async def test_what_an_earlier_process_left_incomplete_is_removed_at_the_start(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    """Its links would keep the whole log, and the ninth snapshot would be refused."""
    own, linked = tmp_path / "data/snapshots", tmp_path / "linked"
    for incomplete in (own / "1-0", own / "today/n0", linked / "n0"):
        for part in ("state", "commitlog"):
            (incomplete / part).mkdir(parents=True)
        (incomplete / "commitlog/00000000000000000000").write_bytes(b"a link to a segment")
    (own / "elsewhere").symlink_to(linked)
    async with running_site(loop, tmp_path / "data") as site:
        await site.post("orders", {"body": "a"})
        status, answer = await take(site)
        assert status == 200, answer
        assert {each.name for each in own.iterdir()} == {
            "today",
            "elsewhere",
            Path(answer["directory"]).name,
        }
        assert not (own / "today/n0").exists()
        assert (linked / "n0/commitlog/00000000000000000000").exists()
    async with running_site(loop, tmp_path / "data") as site:
        assert (await take(site))[0] == 200
        assert verify_replica(OsFileSystem(), answer["directory"]).findings == []


async def test_a_directory_of_others_keeps_what_is_incomplete(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for part in ("state", "commitlog"):
        (tmp_path / "disk/n1" / part).mkdir(parents=True)
    (tmp_path / "data/snapshots").symlink_to(tmp_path / "disk")
    async with running_site(loop, tmp_path / "data") as site:
        await site.post("orders", {"body": "a"})
        assert (await take(site))[0] == 200
    assert (tmp_path / "disk/n1/commitlog").exists()


@pytest.mark.parametrize(
    ("directory", "status", "what"),
    [
        ("elsewhere", 403, "is not below"),
        ("snap-too", 403, "is not below"),
        ("snap", 403, "is not below"),
        ("snap/leads-out", 403, "is not below"),
        ("snap/leads-out/new", 403, "is not below"),
        ("snap/leads-nowhere", 403, "is not below"),
        ("snap/leads-nowhere/new", 403, "is not below"),
        ("snap/leads-home", 409, "live data"),
        ("snap/leads-home/commitlog", 409, "live data"),
        ("snap/used", 409, "not empty; name a new directory"),
        ("snap/file", 409, "snap/file"),
        ("snap/file/new", 409, "snap/file/new"),
        ("snap/loop", 409, "snap/loop"),
        ("data", 409, "live data"),
        ("data/commitlog", 409, "live data"),
        ("data/snapshots", 409, "live data"),
        ("data/snapshots/../commitlog", 409, "without .."),
        ("snap/../elsewhere", 409, "without .."),
        ("snap/\0", 409, "absolute path"),
        ("snap/" + "x" * 300, 409, "xxx"),
        ("snap/" + "x" * HTTP.path_size_max, 409, "at most 4096 characters"),
        ("snap/" + "x/" * HTTP.path_depth_max, 409, "64 levels"),
    ],
)
async def test_a_snapshot_is_made_only_where_it_may_be(
    loop: NetworkedLoop, tmp_path: Path, directory: str, status: int, what: str
) -> None:
    snap, data = tmp_path / "snap", tmp_path / "data"
    (snap / "used").mkdir(parents=True)
    (snap / "used/mine").write_text("keep me")
    (snap / "file").write_text("keep me")
    (tmp_path / "elsewhere").mkdir()
    (snap / "leads-out").symlink_to(tmp_path / "elsewhere")
    (snap / "leads-nowhere").symlink_to(tmp_path / "nowhere")
    (snap / "leads-home").symlink_to(data)
    (snap / "loop").symlink_to(snap / "loop")

    async with running_site(loop, data, snapshot_dirs=(str(snap),)) as site:
        await site.post("orders", {"body": "a"})
        before = files(snap), files(tmp_path / "elsewhere")
        found, answer = await take(site, f"{tmp_path}/{directory}")
        assert (found, what in answer["error"]) == (status, True), answer
        assert (files(snap), files(tmp_path / "elsewhere")) == before
        assert not (tmp_path / "nowhere").exists()
    assert (snap / "used/mine").read_text() == (snap / "file").read_text() == "keep me"


async def test_the_log_names_a_snapshot_that_failed_and_none_that_may_not_be(
    loop: NetworkedLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="broker.http.snapshot")
    async with running_site(loop, tmp_path / "data") as site:
        assert (await take(site, tmp_path / "elsewhere"))[0] == 403
        assert caplog.messages == []
        assert (await take(site, tmp_path / "data"))[0] == 409
    assert [each.partition(":")[0] for each in caplog.messages] == ["no snapshot was made"]


@pytest.mark.parametrize("directory", ["link/new", "real/new", "inside/link/new"])
async def test_links_may_lead_where_snapshots_may_be(
    loop: NetworkedLoop, tmp_path: Path, directory: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/link").symlink_to(tmp_path / "real")

    async with running_site(
        loop, tmp_path / "data", snapshot_dirs=(str(tmp_path / "link"),)
    ) as site:
        await site.post("orders", {"body": "a"})
        status, answer = await take(site, tmp_path / directory)
        assert (status, answer.get("directory")) == (200, str(tmp_path / directory)), answer
    assert (tmp_path / "real/new/manifest.json").exists()


async def test_a_node_s_own_directory_may_be_a_link_to_another_disk(
    loop: NetworkedLoop, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "data/snapshots").symlink_to(tmp_path / "disk")

    async with running_site(loop, tmp_path / "data") as site:
        await site.post("orders", {"body": "a"})
        for directory in (None, tmp_path / "data/snapshots/named"):
            status, answer = await take(site, directory)
            assert status == 200, answer
    assert len(list((tmp_path / "disk").iterdir())) == 2


@pytest.mark.parametrize(
    ("body", "status", "what"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, '{"directory": "/absolute/path"}'),
        (b'{"directory": 7}', 400, '{"directory": "/absolute/path"}'),
        (b'{"directory": null}', 400, '{"directory": "/absolute/path"}'),
        (b'{"dir": "/snap"}', 400, '{"directory": "/absolute/path"}'),
        (b'{"directory": "/snap", "force": true}', 400, '{"directory": "/absolute/path"}'),
        (b'{"directory": "snap"}', 409, "absolute path"),
        (b'{"directory": "/proc/nothing/here"}', 403, "snapshot_dirs in node.toml"),
    ],
)
async def test_a_bad_request_is_refused(site: Site, body: bytes, status: int, what: str) -> None:
    found, answer = await site.ask("POST", "/snapshot", body)
    assert found == status
    assert what in answer["error"]
