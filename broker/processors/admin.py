"""What operators and tools ask: 26, 28, 43, 202, 208, 300.

Apache's tools write some maps with JSON objects as keys, which no JSON reader but theirs accepts;
they are reproduced here because those tools depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.context import BrokerContext
from broker.members import member_addresses
from broker.remoting.codes import PROTOCOL_VERSION, ResponseCode
from broker.remoting.connection import Connection
from broker.remoting.errors import RequestError
from broker.remoting.fields import ext_str
from broker.remoting.frame import Frame
from broker.remoting.javajson import encode_json, object_map
from broker.runtime import runtime_info


class AdminProcessor:
    """Handles what describes a broker and its groups."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def runtime_info(self, connection: Connection, request: Frame) -> None:
        """Code 28."""
        body = encode_json({"table": runtime_info(self._context)})
        connection.respond(request, body=(body,))

    def broker_config(self, connection: Connection, request: Frame) -> None:
        """Code 26: Java properties text."""
        config = self._context.config
        leads = self._context.node.leadership.serving
        settings = {
            "brokerName": config.group,
            "brokerClusterName": config.cluster,
            "brokerId": 0 if leads else config.follower_broker_id,
            "brokerIP1": config.own.address.host,
            "listenPort": config.own.address.port,
            "namesrvAddr": ";".join(config.namesrv),
            "autoCreateTopicEnable": str(config.auto_create_topics).lower(),
            "maxMessageSize": config.max_message_size,
            "flushDiskType": "SYNC_FLUSH" if config.flush == "sync" else "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": config.segment_size,
            "enableDLegerCommitLog": "true",
            "dLegerGroup": config.group,
            "dLegerSelfId": config.node,
            "dLegerPeers": ";".join(
                f"{node}-{at.peer}"
                for node, at in member_addresses(
                    config, self._context.node.core.configuration
                ).items()
            ),
            "version": PROTOCOL_VERSION,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        version = encode_json(self._context.machine.state.topics_version.as_json()).decode()
        connection.respond(request, ext={"version": version}, body=(text.encode(),))

    def all_consumer_offsets(self, connection: Connection, request: Frame) -> None:
        """Code 43: the contents of Apache's consumerOffset.json, queue ids as bare keys."""
        table = {
            f"{topic}@{group}": dict(sorted(queues.items()))
            for (group, topic), queues in sorted(self._context.machine.state.offsets.items())
        }
        connection.respond(request, body=(encode_json({"offsetTable": table}, bare_keys=True),))

    def topic_stats(self, connection: Connection, request: Frame) -> None:
        """Code 202."""
        name = ext_str(request, "topic")
        topic = self._context.machine.state.topics.get(name)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        stats: list[tuple[str, int, Mapping[str, int]]] = []
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            first, end = self._context.reader.offsets(name, queue_id)
            entry = {"lastUpdateTimestamp": 0, "maxOffset": end, "minOffset": first}
            stats.append((name, queue_id, entry))
        connection.respond(request, body=(b'{"offsetTable":%b}' % self._by_queue(stats),))

    def consume_stats(self, connection: Connection, request: Frame) -> None:
        """Code 208: how far a group is in each queue that it has committed an offset for."""
        group = ext_str(request, "consumerGroup")
        only_topic = ext_str(request, "topic", "")
        stats: list[tuple[str, int, Mapping[str, int]]] = []
        for (owner, topic), queues in sorted(self._context.machine.state.offsets.items()):
            if owner != group or (only_topic and topic != only_topic):
                continue
            for queue_id, offset in sorted(queues.items()):
                _first, end = self._context.reader.offsets(topic, queue_id)
                entry = {"brokerOffset": end, "consumerOffset": offset, "lastTimestamp": 0}
                stats.append((topic, queue_id, entry))
        body = b'{"consumeTps":0.0,"offsetTable":%b}' % self._by_queue(stats)
        connection.respond(request, body=(body,))

    def groups_of_topic(self, connection: Connection, request: Frame) -> None:
        """Code 300: the groups that have consumed a topic or are connected for it."""
        topic = ext_str(request, "topic")
        committed = [group for group, of in self._context.machine.state.offsets if of == topic]
        connected = [
            name
            for name, group in self._context.clients.consumers.items()
            if topic in group.subscriptions
        ]
        body = encode_json({"groupList": sorted({*committed, *connected})})
        connection.respond(request, body=(body,))

    def _by_queue(self, stats: Iterable[tuple[str, int, Mapping[str, int]]]) -> bytes:
        broker = self._context.config.group
        return object_map(
            ({"brokerName": broker, "queueId": queue, "topic": topic}, entry)
            for topic, queue, entry in stats
        )
