"""Asks nodes for snapshots over HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from broker.cluster_admin.cluster_view import DOWN, NodeView
from broker.command_error import UsageError
from broker.security.credentials import CredentialsError, security_from

SNAPSHOT_SECONDS = 3600.0


class SnapshotRequests:
    """Made by :func:`snapshot_requests`."""

    def __init__(self, session: aiohttp.ClientSession, scheme: str) -> None:
        self._session = session
        self._scheme = scheme

    async def take(self, node: NodeView, wanted: Path | None) -> dict[str, Any]:
        """Asks a node for its snapshot. Returns the manifest with the ``directory``, or an
        ``error``.

        The snapshot is in ``wanted``, or in the node's own directory if ``wanted`` is not allowed.
        """
        if node.http is None or node.role == DOWN:  # a hanging process would accept the connection
            error = f"no answer from {node.address or 'the node'}; start it and try again"
            return {"replica": node.node, "error": error}
        url = f"{self._scheme}://{node.http}/snapshot"
        try:
            named = {} if wanted is None else {"directory": str(wanted)}
            status, document = await self._post(url, named)
            if status == HTTPStatus.FORBIDDEN and named:
                _status, document = await self._post(url, {})
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            return {"replica": node.node, "error": f"no answer from {node.http}: {fault}"}
        return {"replica": node.node, **document}

    async def _post(self, url: str, body: dict[str, str]) -> tuple[int, dict[str, Any]]:
        async with self._session.post(url, json=body) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def snapshot_requests() -> AsyncIterator[SnapshotRequests]:
    """Requests with the credentials of the environment. Raises :class:`CommandError`."""
    with UsageError.instead_of(CredentialsError):
        security = security_from(os.environ)
        tls = security.tls()
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=SNAPSHOT_SECONDS),
        headers=security.credentials.http_header() if security.credentials else {},
        connector=aiohttp.TCPConnector(ssl=True if tls is None else tls),
    ) as session:
        yield SnapshotRequests(session, "http" if tls is None else "https")
