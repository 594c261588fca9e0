"""``POST /snapshot {"directory": "/absolute/path"}``: this node's snapshot, on its own machine.

The answer has the manifest and the directory. It comes once the snapshot is complete. Without a
directory in the request, the snapshot goes to a new one in ``snapshots/`` of the node's data
directory. Anybody may reach the port, so a requested directory must be below that one, or below a
directory in ``snapshot_dirs`` of ``node.toml``, after links are resolved. It must be new or empty.
A snapshot without a requested directory is removed if its client is gone before the answer.
What an earlier process left incomplete in ``snapshots/`` is removed at the start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from http import HTTPStatus

from aiohttp import web

from broker.config.node_config import NodeConfig
from broker.context import BrokerContext
from broker.http.errors import HttpRefusedError, bad_request, json_response
from broker.http.json_body import decode_json
from broker.http.memory_budget import MEMORY
from broker.limits import HttpLimits
from store.errors import SnapshotError
from store.io.disk_watermarks import DiskLevel, DiskSpace
from store.snapshot import SNAPSHOTS, check_target_path
from store.state.snapshot_manifest import MANIFEST_NAME, Manifest

log = logging.getLogger(__name__)


class SnapshotHandler:
    """Makes snapshots of one broker's node."""

    def __init__(self, context: BrokerContext, limits: HttpLimits) -> None:
        self._context = context
        self._limits = limits
        self._taking: set[asyncio.Future[tuple[str, Manifest]]] = set()

    async def start(self, _app: web.Application) -> None:
        """Removes the incomplete snapshots of earlier processes, in the background.

        Nobody completes them, and their links keep segments that expire. What is begun from now on
        is not among them, because its directory is chosen after the look.
        """
        places = SnapshotDirectories(self._context.config, self._limits)
        self._context.node.snapshots.discard_found(places.incomplete)

    async def post(self, request: web.Request) -> web.Response:
        """See the module. A refusal is 403 or 409, with a hint what to do."""
        wanted = _directory(await request.app[MEMORY].read(request))
        context = self._context
        time_ms = context.wall_clock()
        places = SnapshotDirectories(context.config, self._limits)
        taking = asyncio.ensure_future(
            context.node.snapshots.take(
                lambda: places.own(time_ms) if wanted is None else places.named(wanted), time_ms
            )
        )
        # The snapshot is completed, or removed, even if nobody waits for it any more.
        self._taking.add(taking)
        taking.add_done_callback(self._taken)
        try:
            made, manifest = await asyncio.shield(taking)
        except asyncio.CancelledError:
            if wanted is None:  # nobody else knows where it is
                taking.add_done_callback(self._discard)
            raise
        return json_response({"directory": wanted or made, **asdict(manifest)})

    def _taken(self, taking: asyncio.Future[tuple[str, Manifest]]) -> None:
        self._taking.discard(taking)
        error = None if taking.cancelled() else taking.exception()
        # Who asks for a place that may not be is told: `dledger snapshot` does so before it asks
        # for one of the node's own.
        if error is not None and not isinstance(error, HttpRefusedError):
            log.info("no snapshot was made: %s", error)

    def _discard(self, taking: asyncio.Future[tuple[str, Manifest]]) -> None:
        if not taking.cancelled() and taking.exception() is None:
            made, _ = taking.result()
            log.info("who asked for the snapshot %s is gone: it is removed", made)
            self._context.node.snapshots.discard(made)


class SnapshotDirectories:
    """The directories in which a node may make snapshots. Reads the disk."""

    def __init__(self, config: NodeConfig, limits: HttpLimits) -> None:
        self._data = os.path.realpath(config.data)
        self._named = config.snapshot_dirs
        self._own = os.path.realpath(f"{self._data}/{SNAPSHOTS}")
        self._limits = limits
        self._watermarks = config.retention.watermarks

    def own(self, time_ms: int) -> str:
        """A new directory in ``snapshots/``. Raises as :meth:`named`."""
        taken = frozenset(os.listdir(self._own)) if os.path.isdir(self._own) else frozenset()
        names = (f"{time_ms}-{count}" for count in range(len(taken) + 1))
        return self.named(f"{self._own}/{next(name for name in names if name not in taken)}")

    def named(self, directory: str) -> str:
        """The requested directory, with links resolved.

        Raises :class:`~store.errors.SnapshotError` if no snapshot is possible there, and
        :class:`~broker.http.errors.HttpRefusedError` (403) if none may be made there over HTTP.
        """
        limits = self._limits
        if len(directory) > limits.path_size_max or directory.count("/") > limits.path_depth_max:
            raise SnapshotError(
                f"{directory[:100]}...: a path may have at most {limits.path_size_max} "
                f"characters and {limits.path_depth_max} levels"
            )
        check_target_path(self._data, directory)
        real = os.path.realpath(directory)
        check_target_path(self._data, real)
        allowed = [self._own, *map(os.path.realpath, self._named)]
        if not any(_is_below(real, each) for each in allowed):
            raise HttpRefusedError(
                HTTPStatus.FORBIDDEN,
                f"{directory} is not below {' or '.join([self._own, *self._named])}; "
                "allow others by snapshot_dirs in node.toml; without a directory "
                "the snapshot is made in the first of these",
            )
        if _is_below(real, self._own) and _count(self._own) >= limits.snapshots_max:
            raise SnapshotError(
                f"{self._own} holds {limits.snapshots_max} snapshots; remove some of them"
            )
        self._check_room(real)
        return real

    def incomplete(self) -> list[str]:
        """The snapshots in ``snapshots/`` without a manifest. If that is a link, somebody else may
        write there, and none is given."""
        if os.path.islink(f"{self._data}/{SNAPSHOTS}"):
            return []
        return [path for path, names in _snapshots(self._own) if MANIFEST_NAME not in names]

    def _check_room(self, directory: str) -> None:
        existing = directory
        while not os.path.exists(existing):
            existing = os.path.dirname(existing)
        usage = shutil.disk_usage(existing)
        space = DiskSpace(usage.free, usage.total)
        if self._watermarks.level(space) >= DiskLevel.FORCE:
            raise SnapshotError(
                f"{existing}: the disk is {space.used_percent:.0f} % full; make room first"
            )


def _directory(body: bytearray) -> str | None:
    """The requested directory, or None. Raises :class:`~broker.http.errors.HttpRefusedError`."""
    document = decode_json(body or b"{}")
    if document == {}:
        return None
    directory = None
    if isinstance(document, dict) and document.keys() == {"directory"}:
        directory = document["directory"]
    if not isinstance(directory, str) or not directory:
        raise bad_request('the body must be {"directory": "/absolute/path"} or {}')
    return directory


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")


def _count(directory: str) -> int:
    """The number of snapshots in a directory, complete or not."""
    return sum(1 for _ in _snapshots(directory))


def _snapshots(directory: str) -> Iterator[tuple[str, list[str]]]:
    """The snapshots below a directory, complete or not, each with the names of its files."""
    for path, names, files in os.walk(directory):
        if path != directory and {"state", "commitlog"}.issubset(names):
            yield path, files
            names.clear()
