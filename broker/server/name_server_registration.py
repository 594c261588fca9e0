"""The registration of a broker at every NameServer, repeated regularly.

Every member of a group registers: the leader as broker id 0, node ``n<k>`` as id k + 1 while it
follows. So clients see one address for writes, and tools see all addresses. A broker that is not a
member of its group, because it waits to be added or was removed, does not register.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from broker.limits import STATE
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import RequestCode, ResponseCode, refusal_words
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.register_broker_body import (
    EncodedTable,
    Topics,
    encode_topic_table,
)
from broker.security.credentials import NO_SECURITY, ClientSecurity

INTERVAL_SECONDS = 30.0
RETRY_SECONDS = 1.0
"""The pause before a retry at a NameServer that did not answer, or that dropped this broker with a
lost connection."""

ANSWER_SECONDS = 6.0
GOODBYE_SECONDS = 1.0

THROTTLED_BYTES = 256 << 10
BYTES_A_SECOND = 8 << 20

logger = logging.getLogger("dledger.registration")


class Announcement(NamedTuple):
    """The content of a registration. ``topics`` is a ``topicConfigTable`` as in topics.json."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    http_address: str
    term: int
    data_version: Mapping[str, int]
    """``counter`` and ``timestamp``; it must change whenever the topics do."""
    topics: Topics
    members: Sequence[str] = ()
    """The addresses of all members of the group; empty if unknown. A change goes out with the next
    registration."""
    is_member: bool = True
    """Whether the broker is a member of its group; if not, it does not register."""
    grpc_address: str = ""
    """Empty if the broker has no gRPC port."""

    def identity(self) -> dict[str, str]:
        return {
            "brokerName": self.broker_name,
            "brokerAddr": self.address,
            "clusterName": self.cluster,
            "brokerId": str(self.broker_id),
        }

    def ext(self, body: bytes, *, compressed: bool = False) -> dict[str, str]:
        return {
            **self.identity(),
            "haServerAddr": self.address,
            "httpAddr": self.http_address,
            **({"grpcAddr": self.grpc_address} if self.grpc_address else {}),
            "term": str(self.term),
            "members": ";".join(self.members),
            "compressed": "true" if compressed else "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }

    def significant_fields(self) -> tuple[object, ...]:
        """The fields that NameServers use. Of a follower they use neither topics nor term."""
        if not self.is_member:
            return (self.identity(),)
        news = (self.identity(), self.http_address, self.grpc_address, self.members)
        return news if self.broker_id else (*news, self.term, self.data_version, self.topics)


class TopicTableEncoder:
    """Encodes the newest topic table once: each NameServer gets it every half a minute, and it
    seldom changes."""

    def __init__(self) -> None:
        self._of: tuple[Mapping[str, int], Topics] | None = None
        self._encoded = EncodedTable(b"")

    def encoded(self, data_version: Mapping[str, int], topics: Topics) -> EncodedTable:
        """The body of a registration. Logs the number of topics without room in it."""
        if self._of is None or self._of[1] is not topics or self._of[0] != data_version:
            self._encoded = encode_topic_table(data_version, topics)
            self._of = (data_version, topics)
            if self._encoded.left_out:
                logger.error(
                    "%d of %d topics have no room in a registration and are unknown to "
                    "NameServers, so clients do not find them: delete unused topics, %d are "
                    "allowed",
                    self._encoded.left_out,
                    len(topics),
                    STATE.topics_max,
                )
        return self._encoded


def throttle_seconds(size: int) -> float:
    """The pause after a table of ``size`` bytes, because each new topic encodes and decodes the
    whole table."""
    return 0.0 if size <= THROTTLED_BYTES else min(size / BYTES_A_SECOND, 1.0)


class Registrar:
    """Registers at every NameServer regularly, after changes, and after a lost connection.

    A removed node unregisters at the NameServers that know it.

    ``announce`` gives the present registration. ``states`` has the last result of each NameServer:
    "registered", or why not. A dead NameServer costs one log line, and nothing else.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        nameservers: Sequence[str],
        announce: Callable[[], Announcement],
        *,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self._loop = loop
        self._announce = announce
        self._client = RemotingClient(loop, on_lost=self._connection_lost, security=security)
        self._round: asyncio.TimerHandle | None = None
        self._look: asyncio.Handle | None = None
        self._announced: tuple[object, ...] = ()
        self._table = TopicTableEncoder()
        self._throttled_until = 0.0
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False
        self._is_member = True
        self.states = dict.fromkeys(nameservers, "not registered yet")

    def start(self) -> None:
        self.register_now()

    def register_now(self) -> None:
        """Registers everywhere at the end of this turn of the loop, if anything has changed. After
        a large table it waits at most a second, because each registration has the whole table."""
        if not self._stopped and self._look is None:
            if self._loop.time() < self._throttled_until:
                self._look = self._loop.call_at(self._throttled_until, self._register_if_changed)
            else:
                self._look = self._loop.call_soon(self._register_if_changed)

    async def stop(self) -> None:
        """Unregisters at the NameServers that know this broker, for at most a second, and
        closes."""
        self._stopped = True
        for handle in (self._round, self._look):
            if handle is not None:
                handle.cancel()
        for timer in self._retries.values():
            timer.cancel()
        goodbyes = self._say_goodbye(self._announce(), list(self.states))
        await asyncio.gather(*goodbyes, return_exceptions=True)
        await self._client.close()

    def _say_goodbye(
        self, announcement: Announcement, nameservers: Sequence[str]
    ) -> list[asyncio.Future[Frame]]:
        return [
            self._client.invoke_nowait(
                nameserver,
                RequestCode.UNREGISTER_BROKER,
                announcement.identity(),
                timeout=GOODBYE_SECONDS,
            )
            for nameserver in nameservers
            if self.states[nameserver] == "registered"
        ]

    def _register_if_changed(self) -> None:
        self._look = None
        announcement = self._announce()
        if announcement.significant_fields() != self._announced:
            self._register_everywhere(announcement)

    def _round_is_due(self) -> None:
        self._register_everywhere(self._announce())

    def _register_everywhere(self, announcement: Announcement) -> None:
        if self._round is not None:
            self._round.cancel()
        self._round = self._loop.call_later(INTERVAL_SECONDS, self._round_is_due)
        self._announced = announcement.significant_fields()
        self._register(announcement, list(self.states))

    def _retry(self, nameserver: str) -> None:
        self._register(self._announce(), [nameserver])

    def _register(self, announcement: Announcement, nameservers: Sequence[str]) -> None:
        self._is_member = announcement.is_member
        if not self._is_member:
            self._leave(announcement, nameservers)
            return
        body, compressed, _ = self._table.encoded(announcement.data_version, announcement.topics)
        ext = announcement.ext(body, compressed=compressed)
        self._throttled_until = self._loop.time() + throttle_seconds(len(body))
        for nameserver in nameservers:
            retry = self._retries.pop(nameserver, None)
            if retry is not None:
                retry.cancel()
            answer = self._client.invoke_nowait(
                nameserver, RequestCode.REGISTER_BROKER, ext, (body,), timeout=ANSWER_SECONDS
            )
            answer.add_done_callback(partial(self._answered, nameserver))

    def _leave(self, announcement: Announcement, nameservers: Sequence[str]) -> None:
        for goodbye in self._say_goodbye(announcement, nameservers):
            goodbye.add_done_callback(_ignore_result)
        for nameserver in nameservers:
            if self.states[nameserver] == "registered":
                self._note(
                    nameserver, "not registered, because this broker is not a member of its group"
                )

    def _answered(self, nameserver: str, answer: asyncio.Future[Frame]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()  # retrieved always, because asyncio logs it otherwise
        if self._stopped:
            return
        if isinstance(error, CallError):
            self._note(nameserver, f"unreachable: {error}")
            self._retry_soon(nameserver)
            return
        frame = answer.result()
        if frame.code == ResponseCode.SUCCESS:
            self._note(nameserver, "registered")
            if not self._is_member:  # removed during the request
                self._leave(self._announce(), [nameserver])
        else:
            self._note(
                nameserver, f"refused: {refusal_words(frame.code, frame.remark)}", logging.WARNING
            )

    def _connection_lost(self, nameserver: str) -> None:
        # A NameServer drops a broker with its connection.
        if not self._stopped:
            self._retry_soon(nameserver)

    def _retry_soon(self, nameserver: str) -> None:
        if nameserver not in self._retries:
            self._retries[nameserver] = self._loop.call_later(
                RETRY_SECONDS, self._retry, nameserver
            )

    def _note(self, nameserver: str, state: str, level: int = logging.INFO) -> None:
        if self.states[nameserver] != state:
            self.states[nameserver] = state
            told = {"nameserver": nameserver, "state": state}
            logger.log(level, "NameServer %(nameserver)s: %(state)s", told)


def _ignore_result(answer: asyncio.Future[Frame]) -> None:
    """The outcome of an unregistration does not matter, because NameServers drop silent brokers."""
    if not answer.cancelled():
        answer.exception()
