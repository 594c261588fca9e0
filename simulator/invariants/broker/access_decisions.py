"""Who may do what: docs/security.md. Nothing of the shipped decision is used here.

The accounts are those that the committed log defines, and an admin has asked for each definition.
The check opens the sealed keys, computes the signatures, and compares the permissions by rules of
its own.

A request is judged by an account table that counted while it was under way. What the leader commits
is judged by a table that has every change that an admin was told of before. A message in the log
was sent by somebody who might send it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
import orjson
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from broker.state.commands import PutAccess, decode_commands
from simulator.engine.violation import Violation
from simulator.invariants.broker.batch_invariant import BatchInvariant, LoggedMessage, messages_of
from simulator.workload.account_requests import (
    ADMIN,
    CLUSTER,
    CLUSTER_SECRET,
    AccountHistory,
    AccountListener,
    AccountRequest,
)
from simulator.workload.name_server import NAME_SERVERS
from store.log.entry import Entry
from store.message.batch import Batch

if TYPE_CHECKING:
    from simulator.hosts.host import Host

PUB, SUB = 1, 2
WORDS = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB}
REFUSED = "AclException"
PUT, REMOVE = CHANGES = (50, 51)
"""Requests that change accounts."""

FORWARD = 9005
"""What is in it is judged once more, so it may be refused even to an admin."""

DONE = frozenset((0, 17, 19, 20, 21, 22))
"""Answers to who was let in: success, and that there is nothing."""

_Needed = Sequence[tuple[str, str, int]]
"""For each topic and group: which of the two, its name, and the permission."""


def _consumes(ext: Mapping[str, str], _body: bytes) -> _Needed:
    return [("topic", ext["topic"], SUB), ("group", ext["consumerGroup"], SUB)]


def _pulls(ext: Mapping[str, str], body: bytes) -> _Needed:
    """Without a group it browses."""
    return [each for each in _consumes(ext, body) if each[1]]


NEEDED: Mapping[int, Callable[[Mapping[str, str], bytes], _Needed]] = {
    10: lambda ext, _body: [("topic", ext["topic"], PUB)],
    11: _pulls,
    14: _consumes,
    15: _consumes,
    41: lambda _ext, body: [("group", orjson.loads(body)["consumerGroup"], SUB)],
    310: lambda ext, _body: [("topic", ext["b"], PUB)],
    351: lambda _ext, _body: [],
}
"""By request code; every other code is an admin's."""

COMMITTED = frozenset((10, 15, 17, 50, 51, 310))
"""Requests that succeed only by an entry in the log, which the present leader makes."""


@dataclass(frozen=True, slots=True)
class _Account:
    secret_key: bytes
    admin: bool
    topic: int = 0
    group: int = 0
    topics: tuple[tuple[str, int], ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    white_address: str = ""

    @staticmethod
    def as_asked(fields: Mapping[str, str]) -> _Account:
        """Of request 50."""
        return _Account(
            fields["secretKey"].encode(),
            fields["admin"] == "true",
            WORDS[fields["defaultTopicPerm"]],
            WORDS[fields["defaultGroupPerm"]],
            _pairs(fields["topicPerms"]),
            _pairs(fields["groupPerms"]),
            fields["whiteRemoteAddress"],
        )

    @staticmethod
    def as_defined(name: str, definition: bytes) -> _Account:
        sealed, admin, topic, group, topics, groups, white, _changed = msgpack.unpackb(definition)
        key = hmac.new(CLUSTER_SECRET, b"dledger account keys", hashlib.sha256).digest()
        return _Account(
            AESGCM(key).decrypt(sealed[1:13], sealed[13:], name.encode()),
            admin,
            topic,
            group,
            tuple(map(tuple, topics)),
            tuple(map(tuple, groups)),
            white,
        )

    def permission(self, kind: str, name: str) -> int:
        named = dict(self.topics if kind == "topic" else self.groups)
        return named.get(name, self.topic if kind == "topic" else self.group)


def _pairs(text: str) -> tuple[tuple[str, int], ...]:
    pairs = (each.split("=") for each in text.split(",") if each)
    return tuple(sorted((name, WORDS[word]) for name, word in pairs))


def _change(request: AccountRequest) -> tuple[str, _Account | None]:
    """The account of a request 50 or 51, and what it shall be. None: it shall be removed."""
    removes = request.code == REMOVE
    return request.ext["accessKey"], None if removes else _Account.as_asked(request.ext)


_Table = Mapping[str, _Account]
FIRST_ADMIN = _Account(ADMIN.secret_key.encode(), True)


def _signature(secret_key: bytes, request: AccountRequest) -> str:
    fields = sorted(item for item in request.ext.items() if item[0] != "Signature")
    told = "".join(value for _, value in fields).encode() + request.body
    return base64.b64encode(hmac.new(secret_key, told, hashlib.sha1).digest()).decode()


def may(request: AccountRequest, table: _Table) -> bool:
    """Whether these accounts allow it. The admin of the servers' file counts until the log has an
    account."""
    name = request.ext.get("AccessKey", "")
    if name == CLUSTER.access_key:
        return request.ext.get("Signature") == _signature(CLUSTER.secret_key.encode(), request)
    account = table.get(name, FIRST_ADMIN if name == ADMIN.access_key and not table else None)
    if account is None:
        return False
    if request.ip != account.white_address and request.ext.get("Signature") != _signature(
        account.secret_key, request
    ):
        return False
    if account.admin:
        return True
    needed = NEEDED.get(request.code)
    return needed is not None and all(
        account.permission(kind, name) & permission
        for kind, name, permission in needed(request.ext, request.body)
    )


@dataclass(slots=True)
class _Window:
    """The tables that may judge a request: from that after these indexes on."""

    applied: int
    told: int


class AccessDecisions(BatchInvariant, AccountListener):
    """Takes each committed entry apart once, at the first node that applies it."""

    def __init__(
        self, hosts: Sequence[Host], history: AccountHistory, topics: Sequence[str]
    ) -> None:
        """``topics``: those to which the clients send. The NameServer knows nobody but the first
        admin and the cluster."""
        self._applied = {host.name: -1 for host in hosts}
        self._history = history
        self._topics = topics
        self._told = -1
        self._tables: list[tuple[int, _Table]] = [(-1, {})]
        self._changes: dict[tuple[str, _Account | None], list[AccountRequest]] = {}
        self._windows: dict[int, _Window] = {}
        self.refused = 0
        self.stored = 0

    # --- what clients see

    def asked(self, request: AccountRequest) -> None:
        """See :class:`AccountListener`."""
        self._windows[request.number] = _Window(min(self._applied.values()), self._told)
        if request.code in CHANGES:
            self._changes.setdefault(_change(request), []).append(request)

    def answered(self, request: AccountRequest, code: int, remark: str) -> None:
        """See :class:`AccountListener`."""
        if REFUSED in remark:
            self.refused += 1
            judges = self._judges(request, of_told=False)
            if request.code != FORWARD and all(may(request, table) for table in judges):
                raise Violation(f"{request} is refused, though it may: {remark}")
        elif code in DONE and not self._may(request):
            raise Violation(f"{request} is served, though it may not")
        elif code == 0 and request.code in CHANGES and request.address != NAME_SERVERS:
            self._is_told(request)

    def _is_told(self, request: AccountRequest) -> None:
        name, account = _change(request)
        for index, table in reversed(self._tables):
            if table.get(name) == account:
                self._told = max(self._told, index)
                return
        raise Violation(f"{request} is told that {name} is changed, and the log lacks it")

    def _may(self, request: AccountRequest) -> bool:
        of_told = request.code in COMMITTED
        return any(may(request, table) for table in self._judges(request, of_told=of_told))

    def _judges(self, request: AccountRequest, *, of_told: bool) -> Sequence[_Table]:
        if request.address == NAME_SERVERS:
            return [{}]
        window = self._windows[request.number]
        first = window.told if of_told else window.applied
        at_first = max(index for index, _ in self._tables if index <= first)
        return [table for index, table in self._tables if index >= at_first]

    # --- what replicas see

    def restored(self, host: Host, index: int, _digest: bytes) -> None:
        """See :class:`Invariant`. It may have applied more before."""
        self._applied[host.name] = index
        for number in self._history.open:
            window = self._windows[number]
            window.applied = min(window.applied, index)

    def applies(self, host: Host, entry: Entry, digest: bytes) -> None:
        """See :class:`Invariant`."""
        self._applied[host.name] = entry.index
        super().applies(host, entry, digest)

    def committed_batch(self, _host: Host, entry: Entry, batch: Batch) -> None:
        """See :class:`BatchInvariant`."""
        for message in messages_of(entry, batch, self._topics):
            self._add(message)
        for command in decode_commands(batch.commands):
            if isinstance(command, PutAccess):
                self._define(entry.index, command)

    def _define(self, index: int, command: PutAccess) -> None:
        name, definition = command
        account = _Account.as_defined(name, definition) if definition else None
        is_first = (name, account) == (ADMIN.access_key, FIRST_ADMIN)
        if not is_first and not any(map(self._may, self._changes.get((name, account), ()))):
            raise Violation(f"entry {index} makes {name} what no admin has asked for: {account}")
        table: dict[str, Any] = {**self._tables[-1][1], name: account}
        if account is None:
            del table[name]
        self._tables.append((index, table))

    def _add(self, message: LoggedMessage) -> None:
        request = self._history.requests[int(message.record.body.split()[-1])]
        self.stored += 1
        if not self._may(request):
            topic = message.place[0]
            raise Violation(f"{request} is stored in {topic}, though it may not send there")
