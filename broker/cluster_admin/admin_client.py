"""Requests of commands to a NameServer and its brokers.

Every failure becomes a :class:`CommandError` with the address, the answer, and what to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from broker.cluster_admin.broker_names import (
    MASTER_ID,
    BrokerName,
    DepartedBroker,
    Leaders,
    departed_names,
    registered_names,
    unregistered,
)
from broker.command_error import WHERE_A_NAMESERVER_IS, CommandError, UsageError
from broker.remoting.client import RemotingClient
from broker.remoting.protocol.codes import (
    UNAVAILABLE_CODES,
    RequestCode,
    ResponseCode,
    refusal_words,
)
from broker.remoting.protocol.errors import CallError, ConnectFailedError
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import decode_json
from broker.security.credentials import (
    NO_SECURITY,
    ClientSecurity,
    CredentialsError,
    read_profile,
    security_from,
)
from dledger.wire.endpoint import Endpoint, join_host_port
from store.quoting import quoted

T = TypeVar("T")

ANSWER_SECONDS = 15.0
"""The timeout of a request, long enough for a busy disk, because a command asks once."""

NAMESRV_SECONDS = 3.0
"""The same for a NameServer, which answers from memory. Then the next one is asked."""

LEADER_SECONDS = 5.0
"""How long a command waits for a leader. An election takes a second or two, and longer after a
split vote."""

ASK_AGAIN_SECONDS = 0.1
"""The interval of polls: other processes send no event."""


class UnreachableError(CommandError):
    """No connection could be made, so the request was not sent."""

    retriable = True


class NoAnswerError(CommandError):
    """The request was sent, but no valid answer came."""

    retriable = True


class NobodyError(CommandError):
    """No broker is registered. ``gone``: the broker names that were, for all that is known."""

    def __init__(self, gone: Sequence[str]) -> None:
        why = f": {unregistered(gone)}; start its nodes" if gone else ""
        super().__init__(f"no broker is registered{why}")


class NoTopicError(CommandError):
    """No registered broker has the topic. ``cluster``: ``source`` or ``target``, where there are
    two. ``gone``: the broker names without a process, which may have it."""

    def __init__(self, topic: str, cluster: str = "", gone: Sequence[str] = ()) -> None:
        self.gone = gone
        where = f" in the {cluster} cluster" if cluster else ""
        super().__init__(
            f"no registered broker has topic {topic}{where}, but {unregistered(gone)}; "
            "start its nodes"
            if gone
            else f"topic {topic} does not exist{where}; `dledger topic list` shows all topics, "
            "`dledger topic create` creates one"
        )


class NoLeaderError(CommandError):
    """A broker group has no leader that serves."""

    retriable = True


class RefusedError(CommandError):
    """The server answered with another code than success."""

    def __init__(
        self, address: str, code: int, remark: str | None, ext: Mapping[str, object] | None = None
    ) -> None:
        self.code = code
        self.ext = ext or {}
        self.retriable = code in UNAVAILABLE_CODES
        hint = ""
        if "AclException" in (remark or "") and not security_from(os.environ).credentials:
            hint = "; name an account: --profile FILE or $DLEDGER_PROFILE"
        super().__init__(f"{address} refused: {refusal_words(code, remark)}{hint}")


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of a topic, by broker name: the leaders' addresses, and the number of readable
    queues."""

    masters: Mapping[str, str]
    queues: Mapping[str, int]


class AdminClient:
    """The requests of one command. ``namesrv`` may be several addresses separated by semicolons."""

    def __init__(self, client: RemotingClient, namesrv: str) -> None:
        self._client = client
        self._namesrv = [address.strip() for address in namesrv.split(";") if address.strip()]

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        body: Sequence[bytes] = (),
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Frame:
        """The answer of one server; raises :class:`RefusedError` unless it is a success."""
        fields = {key: _text(value) for key, value in (ext or {}).items()}
        try:
            answer = await self._client.invoke(address, code, fields, body, timeout=seconds)
        except ConnectFailedError as error:
            raise UnreachableError(f"cannot connect to {error}") from error
        except CallError as error:
            raise NoAnswerError(f"no answer from {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(address, answer.code, answer.remark, answer.ext)
        return answer

    async def ask_namesrv(
        self, code: RequestCode, ext: Mapping[str, object] | None = None
    ) -> Frame:
        """The answer of the first NameServer that answers."""
        silent = []
        for address in self._namesrv:
            try:
                return await self.ask(address, code, ext, seconds=NAMESRV_SECONDS)
            except (UnreachableError, NoAnswerError) as error:
                silent.append(error)
            except RefusedError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                raise CommandError(
                    f"{address} is not a NameServer, it does not know request {int(code)}; "
                    f"{WHERE_A_NAMESERVER_IS}"
                ) from error
        if len(silent) == 1 and isinstance(silent[0], NoAnswerError):
            raise NoAnswerError(f"{silent[0]}; {WHERE_A_NAMESERVER_IS}") from silent[0]
        raise UnreachableError(
            f"no NameServer answers ({'; '.join(map(str, silent))}); {WHERE_A_NAMESERVER_IS}"
        )

    async def tell_namesrvs(self, code: RequestCode, ext: Mapping[str, object]) -> None:
        """Sends a request to every NameServer: they do not exchange data."""
        for address in self._namesrv:
            await self.ask(address, code, ext)

    async def broker_names(self) -> list[BrokerName]:
        """Every registered broker name, in order."""
        return registered_names(await self._cluster_info())

    async def departed_brokers(self) -> list[DepartedBroker]:
        """The broker names without a process that the NameServer keeps, in order."""
        return departed_names(await self._cluster_info())

    async def leaders(self) -> Leaders:
        """The leaders of all groups that the NameServer knows.

        Raises :class:`NobodyError` and :class:`NoLeaderError`.
        """
        names, gone = await self._names()
        return Leaders(_with_leaders({name.name: name.master for name in names}), gone)

    async def unregistered(self) -> list[str]:
        """The broker names without a registered process. What only they have is missing from all
        answers. Raises :class:`NobodyError` if no broker is registered."""
        return (await self._names())[1]

    async def _names(self) -> tuple[list[BrokerName], list[str]]:
        """The registered broker names, and those without a process."""
        document = await self._cluster_info()  # one answer: a group is registered or gone
        names, gone = registered_names(document), [each.name for each in departed_names(document)]
        if not names:
            raise NobodyError(gone)
        return names, gone

    async def _cluster_info(self) -> dict[str, Any]:
        return document_of(await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """The leaders' addresses by broker name, of one cluster or of all.

        Raises :class:`CommandError` if the cluster is unknown or a group has no leader, because a
        change on only some brokers would look complete.
        """
        names, _ = await self._names()
        chosen = [name for name in names if cluster in (None, name.cluster)]
        if not chosen:
            known = ", ".join(sorted({name.cluster for name in names}))
            raise CommandError(f"no broker of cluster {cluster} is registered; known are: {known}")
        return _with_leaders({name.name: name.master for name in chosen})

    async def leader(self, group: str) -> str:
        """The address of one group's leader, whatever other groups are like.

        Raises :class:`~broker.command_error.UsageError` for an unknown group, :class:`CommandError`
        for one without a registered node, and :class:`NoLeaderError`.
        """
        names, gone = await self._names()
        masters = {name.name: name.master for name in names}
        if group in gone:
            raise CommandError(f"{unregistered([group])}; start its nodes")
        if group not in masters:
            known = ", ".join(sorted(masters))
            raise UsageError(f"there is no group {quoted(group)}; known are: {known}")
        return _with_leaders({group: masters[group]})[group]

    async def leader_of(self, address: str) -> str:
        """The leader's address for the broker at ``address``; ``address`` itself if the NameServer
        does not know it. Raises :class:`NoLeaderError`."""
        aliases = await _aliases(address)
        for name in await self.broker_names():
            if not aliases.isdisjoint(name.addresses.values()):
                return _with_leaders({name.name: name.master})[name.name]
        return address

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic.

        Raises :class:`NoTopicError`, :class:`NobodyError` if no broker is registered, and
        :class:`NoLeaderError` if one of its groups has no leader.
        """
        try:
            answer = await self.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        except RefusedError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoTopicError(topic, gone=await self.unregistered()) from error
            raise
        document = document_of(answer)
        masters = {
            data["brokerName"]: data["brokerAddrs"].get(str(MASTER_ID))
            for data in sorted(document["brokerDatas"], key=itemgetter("brokerName"))
        }
        queues = {data["brokerName"]: data["readQueueNums"] for data in document["queueDatas"]}
        return TopicRoute(_with_leaders(masters), queues)


def run_admin(namesrv: str, work: Callable[[AdminClient], Awaitable[T]], profile: str = "") -> T:
    """Runs ``work`` on its own event loop, and closes the client afterwards. ``profile`` is used if
    the environment names none."""
    # The call that waited for a connection reports the error.
    logging.getLogger("dledger.remoting").addHandler(logging.NullHandler())

    async def session() -> T:
        with UsageError.instead_of(CredentialsError):
            security = security_from(os.environ)
            if profile and security == NO_SECURITY:
                security = read_profile(profile)
            async with open_admin(namesrv, security) as admin:
                return await work(admin)

    return run_to_its_end(session())


@asynccontextmanager
async def open_admin(namesrv: str, security: ClientSecurity) -> AsyncIterator[AdminClient]:
    """A client, which is closed at the end. Raises :class:`CredentialsError` for an unusable
    certificate."""
    client = RemotingClient(asyncio.get_running_loop(), security=security)
    try:
        yield AdminClient(client, namesrv)
    finally:
        await client.close()


def run_to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """As :func:`asyncio.run`, but closes a coroutine that a signal kept from starting, because
    Python would warn."""
    with closing(work):
        return asyncio.run(work)


def run_on_leaders(namesrv: str, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """As :func:`run_admin`, for work that may be repeated (see :func:`when_led`)."""
    return run_admin(namesrv, lambda admin: when_led(lambda: work(admin)))


async def when_led(work: Callable[[], Awaitable[T]]) -> T:
    """The result of ``work``, which is repeated while a group elects a leader.

    Raises the last error if that takes longer than an election.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + LEADER_SECONDS
    while True:
        try:
            return await work()
        except NoLeaderError:
            if loop.time() >= ends_at:
                raise
        except RefusedError as error:
            if error.code != ResponseCode.SERVICE_NOT_AVAILABLE or loop.time() >= ends_at:
                raise
        await asyncio.sleep(ASK_AGAIN_SECONDS)


async def _aliases(address: str) -> set[str]:
    """The address, and the addresses of its host name."""
    host, port = Endpoint.parse(address)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # also for invalid host names
        return {address}
    return {address, *(join_host_port(str(where[0]), port) for *_, where in found)}


def _with_leaders(masters: Mapping[str, str | None]) -> dict[str, str]:
    known = {name: master for name, master in masters.items() if master is not None}
    if len(known) < len(masters):
        missing = ", ".join(name for name in masters if name not in known)
        raise NoLeaderError(f"{missing} has no leader now; try again in a second")
    return known


def document_of(answer: Frame) -> dict[str, Any]:
    """The JSON object in an answer's body."""
    try:
        document = decode_json(bytes(answer.body)) if answer.body else {}
    except ValueError as error:
        raise CommandError(f"the answer to request {answer.opaque} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CommandError(f"the answer to request {answer.opaque} is not a JSON object")
    return document


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
