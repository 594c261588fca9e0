"""A NameServer and brokers in memory: real frames, real records, and faults on command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from broker.filter.sql92_parser import parse_selector
from broker.filter.subscription import tag_codes
from broker.ingest.batch_body import decode_batch_body
from broker.ingest.property_templates import MessageBuilder, origin
from broker.remoting.connection import Connection
from broker.remoting.dispatch import dispatch_by_code
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.ext_fields import ext_int, ext_str
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import object_map
from broker.remoting.server import RemotingServer
from store.message.batch import QueueRun, decode_batch, encode_batch
from store.message.properties import decode_properties, find_property
from store.message.record import decode_record, make_pending_message, record_bounds
from tests.support.virtual_network import NetworkedLoop

NAME_SERVER_PORT = 9876
NAME_SERVER = f"10.0.0.1:{NAME_SERVER_PORT}"
HOST = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
STALLING = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
)
NOW_MS = 1_700_000_000_000


@dataclass
class Stored:
    """One record and what a broker filters by."""

    record: bytes
    tags_code: int


@dataclass
class Group:
    """The state of all brokers of a group: the committed log."""

    name: str
    queues: dict[tuple[str, int], list[Stored]] = field(default_factory=dict)
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    position: int = 0

    def append(
        self, topic: str, queue_id: int, messages: list[tuple[bytes, bytes]]
    ) -> tuple[int, list[str]]:
        """Stores (body, properties) pairs; the first offset and the message ids."""
        queue = self.queues.setdefault((topic, queue_id), [])
        first = len(queue) + self.first_offsets.get((topic, queue_id), 0)
        staged = [
            make_pending_message(topic, body, properties, born_timestamp=NOW_MS, born_host=HOST)
            for body, properties in messages
        ]
        runs = [QueueRun(topic, queue_id, first, staged)]
        body = b"".join(encode_batch(self.position, NOW_MS + first, HOST, runs, b""))
        self.position += len(body) + 48
        records = bytes(decode_batch(memoryview(body)).records)
        ids: list[str] = []
        for (start, end), message in zip(record_bounds(records), staged, strict=True):
            ids.append(f"{HOST.hex().upper()}{decode_record(records, start).position:016X}")
            queue.append(Stored(records[start:end], message.tags_code))
        return first, ids

    def bodies(self, topic: str, queue_id: int) -> list[bytes]:
        return [decode_record(each.record).body for each in self.queues.get((topic, queue_id), [])]


class Broker:
    """One broker process. It answers as leader or refuses. Tests can make it fail in many ways."""

    def __init__(self, loop: NetworkedLoop, group: Group, port: int) -> None:
        self.loop = loop
        self.group = group
        self.port = port
        self.address = f"10.0.0.1:{port}"
        self.leading = True
        self.requests: list[Frame] = []
        self.members: dict[Connection, str] = {}
        self.held: list[tuple[Connection, Frame]] = []
        self.refusals: list[tuple[int, str]] = []
        """How the next sends are refused."""
        self.refusal_ext: dict[str, str] = {}
        self.lose_answers = 0
        """For this many sends, the connection breaks after the message is stored."""
        self.silent = False
        """Whether messages are stored without an answer."""
        self.mute = False
        """Sends are neither stored nor answered."""
        self.stalled: list[tuple[Connection, Frame]] | None = None
        """While it is a list, sends and offset requests wait there, as with a slow disk."""
        self.overrides: dict[int, Callable[[Connection, Frame], None]] = {}
        self.server = self._new_server()

    def _new_server(self) -> RemotingServer:
        handlers = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.QUERY_CONSUMER_OFFSET: self._committed,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._client_ids,
        }
        known = dispatch_by_code({int(code): handler for code, handler in handlers.items()})

        def dispatch(connection: Connection, request: Frame) -> None:
            self.requests.append(request)
            if self.stalled is not None and request.code in STALLING:
                self.stalled.append((connection, request))
                return
            self.overrides.get(request.code, known)(connection, request)

        return RemotingServer(self.loop, "10.0.0.1", self.port, dispatch)

    async def start(self) -> None:
        await self.server.start()

    def go_on(self) -> None:
        """The disk has recovered: what waited in :attr:`stalled` is done, in order."""
        stalled, self.stalled = self.stalled or [], None
        handlers = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.QUERY_CONSUMER_OFFSET: self._committed,
        }
        for connection, request in stalled:
            handlers[RequestCode(request.code)](connection, request)

    async def kill(self) -> None:
        """As ``kill -9``: connections break, and what it knew of its clients is gone."""
        self.members.clear()
        self.held.clear()
        for connection in self.server.connections:
            connection.abort()
        await self.server.stop()
        self.server = self._new_server()

    def count(self, code: int) -> int:
        """How many requests of that code came."""
        return sum(request.code == code for request in self.requests)

    def notify_members(self, group: str) -> None:
        """Request 40 to every member."""
        for connection in self.members:
            connection.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})

    def reset_group(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator resets the offset: it is committed, and every member gets request 220."""
        self.group.offsets[group, topic, queue_id] = offset
        queue = {"brokerName": self.group.name, "queueId": queue_id, "topic": topic}
        body = b'{"offsetTable":%b}' % object_map([(queue, offset)])
        ext = {"group": group, "topic": topic, "timestamp": "0", "isForce": "true"}
        for connection in self.members:
            connection.push(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, (body,))

    def store(self, topic: str, queue_id: int, *bodies: bytes, properties: bytes = b"") -> None:
        """Stores messages that no producer of the test sent, and wakes held pulls."""
        self.group.append(topic, queue_id, [(body, properties) for body in bodies])
        self.run_held_pulls()

    def run_held_pulls(self) -> None:
        """The queues have changed: held pulls are tried again."""
        held, self.held = self.held, []
        for connection, request in held:
            self._pull(connection, request)

    def _send(self, connection: Connection, request: Frame) -> None:
        messages = [(request.body, ext_str(request, "i").encode())]
        self._append(connection, request, messages)

    def _send_batch(self, connection: Connection, request: Frame) -> None:
        of = origin(ext_str(request, "b"), 0, NOW_MS, HOST, 0)
        sent = decode_batch_body(MessageBuilder("fake"), of, request.body)
        messages = [(bytes(each.body), each.properties) for each in sent]
        self._append(connection, request, messages)

    def _append(
        self, connection: Connection, request: Frame, messages: list[tuple[bytes, bytes]]
    ) -> None:
        if self.mute:
            return
        if not self.leading:
            connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")
            return
        if self.refusals:
            connection.respond(request, *self.refusals.pop(0), self.refusal_ext)
            return
        topic, queue_id = ext_str(request, "b"), ext_int(request, "e")
        first, ids = self.group.append(topic, queue_id, messages)
        if self.silent:
            return
        if self.lose_answers:
            self.lose_answers -= 1
            connection.abort()
            return
        ext = {"msgId": ",".join(ids), "queueId": str(queue_id), "queueOffset": str(first)}
        connection.respond(request, ext=ext)
        self.run_held_pulls()

    def _query(self, connection: Connection, request: Frame) -> None:
        topic, key = ext_str(request, "topic"), ext_str(request, "key").encode()
        found = [
            each.record
            for (name, _), queue in self.group.queues.items()
            for each in queue
            if name == topic
            and find_property(decode_record(each.record).properties, b"UNIQ_KEY") == key
        ]
        if found:
            connection.respond(request, body=found)
        else:
            connection.respond(request, ResponseCode.QUERY_NOT_FOUND, "no such key")

    def _pull(self, connection: Connection, request: Frame) -> None:
        key = ext_str(request, "topic"), ext_int(request, "queueId")
        asked, limit = ext_int(request, "queueOffset"), ext_int(request, "maxMsgNums")
        queue = self.group.queues.get(key, [])
        first = self.group.first_offsets.get(key, 0)
        end = first + len(queue)
        chosen = queue[max(asked - first, 0) :][:limit]
        wanted = _filter(request)
        code, following, body = ResponseCode.SUCCESS, asked + len(chosen), []
        if asked > end or asked < first:
            code, following = ResponseCode.PULL_OFFSET_MOVED, end if asked > end else first
        elif not chosen:
            self.held.append((connection, request))
            return
        else:
            body = [each.record for each in chosen if wanted(each)]
            if not body:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        ext = {
            "nextBeginOffset": str(following),
            "minOffset": str(first),
            "maxOffset": str(end),
            "suggestWhichBrokerId": "0",
        }
        connection.respond(request, code, ext=ext, body=body)

    def _committed(self, connection: Connection, request: Frame) -> None:
        offset = self.group.offsets.get(self._offset_key(request))
        if offset is None:
            connection.respond(request, ResponseCode.QUERY_NOT_FOUND, "never committed")
        else:
            connection.respond(request, ext={"offset": str(offset)})

    def _commit(self, connection: Connection, request: Frame) -> None:
        if not self.leading:
            connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")
            return
        self.group.offsets[self._offset_key(request)] = ext_int(request, "commitOffset")
        connection.respond(request)

    @staticmethod
    def _offset_key(request: Frame) -> tuple[str, str, int]:
        return (
            ext_str(request, "consumerGroup"),
            ext_str(request, "topic"),
            ext_int(request, "queueId"),
        )

    def _min_offset(self, connection: Connection, request: Frame) -> None:
        first, _ = self._range(request)
        connection.respond(request, ext={"offset": str(first)})

    def _max_offset(self, connection: Connection, request: Frame) -> None:
        _, end = self._range(request)
        connection.respond(request, ext={"offset": str(end)})

    def _search(self, connection: Connection, request: Frame) -> None:
        """The store time of a message is its offset."""
        offset = ext_int(request, "timestamp") - NOW_MS
        connection.respond(request, ext={"offset": str(offset)})

    def _range(self, request: Frame) -> tuple[int, int]:
        key = ext_str(request, "topic"), ext_int(request, "queueId")
        first = self.group.first_offsets.get(key, 0)
        return first, first + len(self.group.queues.get(key, []))

    def _heartbeat(self, connection: Connection, request: Frame) -> None:
        body = orjson.loads(request.body)
        is_new = connection not in self.members
        self.members[connection] = body["clientID"]
        connection.on_close(self._forget)
        connection.respond(request)
        if is_new:
            self.notify_members(body["consumerDataSet"][0]["groupName"])

    def _forget(self, connection: Connection) -> None:
        self.members.pop(connection, None)

    def _unregister(self, connection: Connection, request: Frame) -> None:
        self.members.pop(connection, None)
        connection.respond(request)
        self.notify_members(ext_str(request, "consumerGroup"))

    def _client_ids(self, connection: Connection, request: Frame) -> None:
        if not self.members:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, "no member")
            return
        body = orjson.dumps({"consumerIdList": sorted(set(self.members.values()))})
        connection.respond(request, body=(body,))


def _filter(request: Frame) -> Callable[[Stored], bool]:
    expression = ext_str(request, "subscription", "")
    if ext_str(request, "expressionType", "TAG") == "SQL92":
        selector = parse_selector(expression)
        return lambda each: selector.matches(
            decode_properties(decode_record(each.record).properties)
        )
    codes = tag_codes(expression)
    return lambda each: codes is None or each.tags_code in codes


class Cluster:
    """Groups of brokers behind one NameServer, which always knows who leads."""

    def __init__(self, loop: NetworkedLoop, ports: int = 0) -> None:
        """``ports`` is added to the ports, so that there may be two clusters."""
        self.loop, self.ports = loop, ports
        self.brokers: list[Broker] = []
        self.topics: dict[str, int] = {}
        """Queues of each topic; all groups have all topics."""
        self.leaderless: list[str] = []
        """Groups that the NameServer knows no leader of."""
        self.lookups: list[str] = []
        self._name_server = RemotingServer(loop, "10.0.0.1", NAME_SERVER_PORT + ports, self._route)

    async def start(self, groups: int = 1) -> list[Broker]:
        """One leader for each group."""
        await self._name_server.start()
        for number in range(groups):
            await self.add(Group(f"broker-{'abc'[number]}"))
        return self.brokers

    async def add(self, group: Group) -> Broker:
        broker = Broker(self.loop, group, 10911 + self.ports + 10 * len(self.brokers))
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def fail_over(self, old: Broker) -> Broker:
        """Kills a leader; a new one with the same log takes over at once."""
        await old.kill()
        old.leading = False
        return await self.add(old.group)

    async def stop_name_server(self) -> None:
        await self._name_server.stop()

    async def close(self) -> None:
        for broker in self.brokers:
            await broker.kill()
        await self._name_server.stop()

    def _route(self, connection: Connection, request: Frame) -> None:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {
                broker.group.name: {"brokerAddrs": dict[str, str]()} for broker in self.brokers
            }
            connection.respond(request, body=(orjson.dumps({"brokerAddrTable": table}),))
            return
        topic = ext_str(request, "topic")
        self.lookups.append(topic)
        if topic not in self.topics:
            connection.respond(request, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            return
        addresses: dict[str, dict[str, str]] = {}
        for broker in self.brokers:
            known = addresses.setdefault(broker.group.name, {})
            if broker.leading and broker.group.name not in self.leaderless:
                known["0"] = broker.address
        queues = dict.fromkeys(("readQueueNums", "writeQueueNums"), self.topics[topic])
        document = {
            "brokerDatas": [
                {"brokerName": name, "cluster": "c", "brokerAddrs": known}
                for name, known in addresses.items()
            ],
            "queueDatas": [
                {"brokerName": name, "perm": 6, "topicSysFlag": 0, **queues} for name in addresses
            ],
        }
        connection.respond(request, body=(orjson.dumps(document),))
