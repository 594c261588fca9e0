"""Requests of accounts, as their clients sent them, and their answers."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import NamedTuple

from broker.remoting.client import RemotingClient
from broker.remoting.protocol.frame import Frame
from broker.security.credentials import Credentials
from simulator.hosts.client_host import ClientHost

REQUEST_SECONDS = 1.5

ADMIN = Credentials("first-admin", "secret-of-the-first-admin")
"""The account in the servers' ``admin.toml``. Its key never changes."""

CLUSTER_SECRET = b"\x05" * 32
_CLUSTER_KEY = hmac.digest(CLUSTER_SECRET, b"dledger cluster requests", "sha256").hex()
CLUSTER = Credentials("dledger-cluster", _CLUSTER_KEY)
"""The name with which servers sign. Anybody with the secret can do that."""


class Definition(NamedTuple):
    """The definition of an account. Permissions are RocketMQ's words."""

    secret_key: str
    admin: bool = False
    default_topic: str = "DENY"
    default_group: str = "DENY"
    topics: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, str], ...] = ()
    white_address: str = ""

    def fields(self, access_key: str) -> dict[str, str]:
        """The fields of request 50. They name everything, so they replace an earlier definition."""
        return {
            "accessKey": access_key,
            "secretKey": self.secret_key,
            "admin": str(self.admin).lower(),
            "defaultTopicPerm": self.default_topic,
            "defaultGroupPerm": self.default_group,
            "topicPerms": ",".join(f"{name}={each}" for name, each in self.topics),
            "groupPerms": ",".join(f"{name}={each}" for name, each in self.groups),
            "whiteRemoteAddress": self.white_address,
        }


@dataclass(eq=False, slots=True)
class AccountRequest:
    """One request. ``ext`` has the signature, if there is one; ``ip`` is the client's machine."""

    number: int
    client: str
    ip: str
    address: str
    code: int
    ext: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        name = self.ext.get("AccessKey", "nobody")
        return f"request {self.number} of {self.client} as {name}, code {self.code}"


class AccountListener:
    """Gets all requests. A check overrides the methods that it needs."""

    def asked(self, request: AccountRequest) -> None:
        """The request is sent now."""

    def answered(self, request: AccountRequest, code: int, remark: str) -> None:
        """The request is answered."""


@dataclass(slots=True)
class AccountHistory:
    """The requests and keys of all clients of a world."""

    listeners: list[AccountListener] = field(default_factory=list)
    requests: dict[int, AccountRequest] = field(default_factory=dict)
    open: dict[int, AccountRequest] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    """By access key, the secret keys that the admin gave it, in order."""
    answered: int = 0
    unknown: int = 0
    _numbers: count[int] = field(default_factory=count)

    def next_number(self) -> int:
        """The number of the next request. The body of a message names it."""
        return next(self._numbers)

    def client_ended(self, client: str) -> None:
        """The client's process died, so its requests get no answers."""
        for request in [each for each in self.open.values() if each.client == client]:
            self._ended(request)

    def _ended(self, request: AccountRequest) -> None:
        if self.open.pop(request.number, None) is not None:
            self.unknown += 1

    def send(
        self, client_host: ClientHost, remoting: RemotingClient, request: AccountRequest
    ) -> asyncio.Future[Frame]:
        """Sends a request as it is."""
        self.requests[request.number] = self.open[request.number] = request
        for listener in self.listeners:
            listener.asked(request)
        answer = remoting.invoke_nowait(
            request.address, request.code, request.ext, (request.body,), timeout=REQUEST_SECONDS
        )
        answer.add_done_callback(partial(self._answered, client_host, request))
        return answer

    def _answered(
        self, client_host: ClientHost, request: AccountRequest, answer: asyncio.Future[Frame]
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            client_host.note(f"{request} has no answer")
            self._ended(request)
            return
        frame = answer.result()
        client_host.note(f"{request} is answered with {frame.code}")
        del self.open[request.number]
        self.answered += 1
        for listener in self.listeners:
            listener.answered(request, frame.code, frame.remark or "")
