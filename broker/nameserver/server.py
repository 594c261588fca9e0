"""The NameServer: the remoting port for the tables of ``nameserver/route_table.py``."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Callable

from broker.limits import NAMESERVER, RemotingLimits
from broker.nameserver.kv_config import KvConfig
from broker.nameserver.registrations import EXPIRY_MS, Registration
from broker.nameserver.route_table import RouteTable
from broker.remoting.access_guard import guarded
from broker.remoting.connection import Connection, Handler
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.protocol.codes import VERSION_STANDARD_JSON, RequestCode, ResponseCode
from broker.remoting.protocol.errors import FieldError, RequestError, TooManyError
from broker.remoting.protocol.ext_fields import ext_bool, ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import encode_json
from broker.remoting.protocol.register_broker_body import decode_data_version, decode_topic_table
from broker.remoting.server import RemotingServer
from broker.security.access_control import AccessControl
from broker.security.port_tls import PortTls
from broker.system.file_descriptor_limits import (
    DescriptorLimits,
    connections_of_name_server,
    raise_file_limit,
)
from dledger.periodic import Periodic
from dledger.wire.endpoint import address_host
from store.quoting import FROM_OUTSIDE, shortened

SCAN_SECONDS = 10.0
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"

READS = frozenset(
    (
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_NAMESRV_CONFIG,
    )
)
"""Codes without access control: RocketMQ's clients ask for routes without a signature. All other
codes write, or renew a registration, as the query of a broker's version does."""

logger = logging.getLogger("dledger.nameserver")


class NameServer:
    """One NameServer. It stores nothing: after a restart brokers register again within seconds.

    ``clock`` gives milliseconds of a monotonic clock, by default the loop's.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        clock: Callable[[], int] | None = None,
        limits: RemotingLimits | None = None,
        access: AccessControl | None = None,
        tls: PortTls | None = None,
        turn_clock: Callable[[], float] | None = None,
        cpu_clock: Callable[[], float] | None = None,
    ) -> None:
        """With ``access``, only servers of the cluster and admins may write. ``turn_clock``,
        ``cpu_clock``: see :class:`~broker.remoting.turn_limit.TurnLimit`."""
        self._loop = loop
        self.routes = RouteTable(clock or (lambda: int(loop.time() * 1000)))
        self._key_values = KvConfig()
        self._answers: dict[tuple[str, bool, str | None], bytes] = {}
        """A cache of encoded routes at ``_answers_version``: in an outage each route is requested
        many times without a change."""
        self._answers_version, self._answers_bytes = -1, 0
        self._brokers: dict[int, Connection] = {}
        """By their numbers, those over which anybody wanted to register."""
        self._refused: dict[Connection, str] = {}
        """The reason of the last refused registration, by connection."""
        self._scans = Periodic(loop, SCAN_SECONDS, self._scan)
        self.dispatch: Handler = dispatch_by_code(self._handlers())
        if access is not None:
            self.dispatch = guarded(self.dispatch, access, {}, without=READS)
        self.server = RemotingServer(
            *(loop, host, port, self.dispatch, limits),
            tls=tls,
            clock=turn_clock,
            cpu_clock=cpu_clock,
        )

    @property
    def port(self) -> int:
        return self.server.port

    async def start(self) -> None:
        """Listens. Raises ``OSError`` if the address cannot be used."""
        await self.server.start()
        self._scans.start()

    async def stop(self) -> None:
        self._scans.stop()
        await self.server.stop()

    def _handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_key_value,
            RequestCode.GET_KV_CONFIG: self._get_key_value,
            RequestCode.DELETE_KV_CONFIG: self._delete_key_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_key_values,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
        }

    def _scan(self) -> None:
        for address, channel in self.routes.expire():
            logger.warning("%s: dropped: silent for too long", address, extra=FROM_OUTSIDE)
            connection = self._brokers.get(channel)
            if connection is not None:  # else it is closed, and its brokers go one by one
                connection.abort(reason="silent for too long")

    # Brokers

    def _register(self, connection: Connection, request: Frame) -> None:
        if connection.number not in self._brokers:
            self._brokers[connection.number] = connection
            connection.on_close(self._broker_gone)
        crc = ext_int(request, "bodyCrc32", 0)
        if crc and crc != zlib.crc32(request.body) & 0x7FFFFFFF:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        try:
            registration = read_registration(request)
            host = address_host(connection.remote_address)
            leader = self.routes.register(registration, connection.number, host)
        except FieldError as error:
            self._note_refusal(connection, error.remark)
            raise
        ext = {}
        if leader.master_address:
            ext = {"haServerAddr": leader.ha_address, "masterAddr": leader.master_address}
        order = self._key_values.namespace(ORDER_TOPIC_NAMESPACE)
        body = (encode_json({"table": order}),) if order else ()
        connection.respond(request, ext=ext, body=body)

    def _note_refusal(self, connection: Connection, why: str) -> None:
        if self._refused.get(connection) != why:
            self._refused[connection] = why
            logger.warning(
                "%s: registration refused: %s",
                connection.remote_address,
                shortened(why),
                extra=FROM_OUTSIDE,
            )

    def _broker_gone(self, connection: Connection) -> None:
        del self._brokers[connection.number]
        self._refused.pop(connection, None)
        self._drop_brokers(connection.number)

    def _drop_brokers(self, channel: int) -> None:
        """Drops one broker in each turn of the loop, because the last one of a name takes all its
        topics along."""
        address = self.routes.drop_one(channel)
        if address is not None:
            logger.warning("%s: dropped: its connection closed", address, extra=FROM_OUTSIDE)
            self._loop.call_soon(self._drop_brokers, channel)

    def _unregister(self, connection: Connection, request: Frame) -> None:
        self.routes.unregister(
            ext_str(request, "brokerName"),
            ext_str(request, "brokerAddr"),
            connection.number,
            address_host(connection.remote_address),
        )
        connection.respond(request)

    def _query_data_version(self, connection: Connection, request: Frame) -> None:
        changed, known = self.routes.query_data_version(
            ext_str(request, "brokerAddr"), decode_data_version(request.body), connection.number
        )
        connection.respond(
            request,
            ext={"changed": "true" if changed else "false"},
            body=(encode_json(known.to_json()),),
        )

    # Clients

    def _route(self, connection: Connection, request: Frame) -> None:
        topic = ext_str(request, "topic")
        order = self._key_values.get(ORDER_TOPIC_NAMESPACE, topic)
        if self._answers_version != self.routes.version:
            self._answers_version = self.routes.version
            self._forget_answers()
        key = (topic, _quotes_keys(request), order)
        answer = self._answers.get(key)
        if answer is None:
            route = self.routes.route(topic)
            if route is None:
                raise RequestError(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"No topic route info in name server for the topic: {topic}",
                )
            if order is not None:
                route["orderTopicConf"] = order
            answer = _document(request, route)
            self._keep(key, answer)
        connection.respond(request, body=(answer,))

    def _keep(self, key: tuple[str, bool, str | None], answer: bytes) -> None:
        if (
            len(self._answers) >= NAMESERVER.routes_kept_max
            or self._answers_bytes + len(answer) > NAMESERVER.routes_kept_bytes_max
        ):
            self._forget_answers()
        if len(answer) <= NAMESERVER.routes_kept_bytes_max:
            self._answers[key] = answer
            self._answers_bytes += len(answer)

    def _forget_answers(self) -> None:
        self._answers.clear()
        self._answers_bytes = 0

    def _cluster_info(self, connection: Connection, request: Frame) -> None:
        """Code 106. ``goneTable`` is for the tools of this project; others ignore it."""
        document = self.routes.cluster_info()
        if gone := self.routes.gone.as_json():
            document["goneTable"] = gone
        connection.respond(request, body=(_document(request, document),))

    # Administration

    def _topics(self, connection: Connection, request: Frame) -> None:
        connection.respond(request, body=(encode_json({"topicList": self.routes.topics()}),))

    def _topics_of_cluster(self, connection: Connection, request: Frame) -> None:
        topics = self.routes.topics_of_cluster(ext_str(request, "cluster"))
        connection.respond(request, body=(encode_json({"topicList": topics}),))

    def _system_topics(self, connection: Connection, request: Frame) -> None:
        topics = []
        for cluster, names in self.routes.clusters().items():
            topics += [cluster, *names]
        document = {"brokerAddr": self.routes.any_address(), "topicList": topics}
        connection.respond(request, body=(encode_json(document),))

    def _delete_topic(self, connection: Connection, request: Frame) -> None:
        self.routes.delete_topic(ext_str(request, "topic"), ext_str(request, "clusterName", ""))
        connection.respond(request)

    def _wipe_write_perm(self, connection: Connection, request: Frame) -> None:
        count = self.routes.wipe_write_perm(ext_str(request, "brokerName"))
        connection.respond(request, ext={"wipeTopicCount": str(count)})

    def _add_write_perm(self, connection: Connection, request: Frame) -> None:
        count = self.routes.add_write_perm(ext_str(request, "brokerName"))
        connection.respond(request, ext={"addTopicCount": str(count)})

    def _get_config(self, connection: Connection, request: Frame) -> None:
        settings = f"listenPort={self.port}\nbrokerExpiredMillis={EXPIRY_MS}\n"
        connection.respond(request, body=(settings.encode(),))

    def _update_config(self, _connection: Connection, _request: Frame) -> None:
        raise RequestError(
            ResponseCode.NO_PERMISSION, "the settings of a NameServer cannot be changed at run time"
        )

    # Key-value configuration

    def _put_key_value(self, connection: Connection, request: Frame) -> None:
        self._key_values.put(
            ext_str(request, "namespace"), ext_str(request, "key"), ext_str(request, "value")
        )
        connection.respond(request)

    def _get_key_value(self, connection: Connection, request: Frame) -> None:
        namespace, key = ext_str(request, "namespace"), ext_str(request, "key")
        value = self._key_values.get(namespace, key)
        if value is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}"
            )
        connection.respond(request, ext={"value": value})

    def _delete_key_value(self, connection: Connection, request: Frame) -> None:
        self._key_values.delete(ext_str(request, "namespace"), ext_str(request, "key"))
        connection.respond(request)

    def _list_key_values(self, connection: Connection, request: Frame) -> None:
        namespace = ext_str(request, "namespace")
        table = self._key_values.namespace(namespace)
        if table is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        connection.respond(request, body=(encode_json({"table": table}),))


def read_registration(request: Frame) -> Registration:
    """The registration in a request 103. Raises
    :class:`~broker.remoting.protocol.errors.FieldError`."""
    table = decode_topic_table(request.body, compressed=ext_bool(request, "compressed", False))
    members = tuple(filter(None, ext_str(request, "members", "").split(";")))
    for kind, names in (("members", members), ("filter servers", table.filter_servers)):
        if len(names) > NAMESERVER.members_max:
            raise TooManyError(f"it has {len(names)} {kind}", NAMESERVER.members_max)
        for name in names:
            _checked(name, kind)
    return Registration(
        cluster=_name(request, "clusterName"),
        broker_name=_name(request, "brokerName"),
        broker_id=ext_int(request, "brokerId", minimum=0),
        address=_name(request, "brokerAddr"),
        table=table,
        ha_address=_checked(ext_str(request, "haServerAddr", ""), "haServerAddr"),
        http_address=_checked(ext_str(request, "httpAddr", ""), "httpAddr"),
        grpc_address=_checked(ext_str(request, "grpcAddr", ""), "grpcAddr"),
        term=ext_int(request, "term", None, minimum=0, maximum=NAMESERVER.term_max),
        members=members,
        expiry_ms=ext_int(
            request,
            "heartbeatTimeoutMillis",
            EXPIRY_MS,
            minimum=1,
            maximum=NAMESERVER.expiry_ms_max,
        ),
    )


def _name(request: Frame, field: str) -> str:
    name = ext_str(request, field)
    if not name:
        raise FieldError(f"field {field} is empty")
    return _checked(name, f"field {field}")


def _checked(name: str, kind: str) -> str:
    if len(name) > NAMESERVER.name_size_max:
        raise TooManyError(f"{kind} has {len(name)} characters", NAMESERVER.name_size_max)
    return name


def _quotes_keys(request: Frame) -> bool:
    """Whether integer keys are quoted: clients before 4.9.4 know only bare keys."""
    return request.version >= VERSION_STANDARD_JSON or ext_bool(
        request, "acceptStandardJsonOnly", False
    )


def _document(request: Frame, document: object) -> bytes:
    return encode_json(document, bare_keys=not _quotes_keys(request))


async def serve(
    host: str, port: int, access: AccessControl | None = None, tls: PortTls | None = None
) -> NameServer:
    """Starts a NameServer on the running loop; its owner awaits :meth:`NameServer.stop`."""
    limits = DescriptorLimits()
    connections = connections_of_name_server(raise_file_limit(limits), limits)
    nameserver = NameServer(
        asyncio.get_running_loop(),
        host,
        port,
        limits=connections,
        access=access,
        tls=tls,
        turn_clock=time.monotonic,
        cpu_clock=time.thread_time,
    )
    await nameserver.start()
    return nameserver
