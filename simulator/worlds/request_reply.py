"""Clients that send requests, and others that reply to a part of them, by SQL92."""

from __future__ import annotations

from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.message_order import Ordering
from simulator.invariants.broker.sql92_selection import OnlySelectedBySql92
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.workload.history import History
from simulator.workload.request_reply import PAUSE_MAX, ReplyingClient, RequestingClient, is_wanted
from simulator.worlds.cluster import Cluster
from simulator.worlds.messages import Messages
from simulator.worlds.workload import Workload

TOPIC = "questions"
GROUP = "experts"
REQUEST_PROPERTIES = ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER")
"""Properties that clients and brokers add to a question, so that its answer finds back."""


class RequestReply(Workload):
    """See the module."""

    targets = ("q0", "q1", "a0", "a1")

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self.questions = History(cluster.trace.note)
        self._askers = [
            RequestingClient(
                TOPIC,
                self.questions,
                cluster.streams.stream(name),
                pause_max=cluster.settings.added_pauses * PAUSE_MAX,
            )
            for name in ("asking", "asking 1")
        ]
        self._answering = [
            ReplyingClient(GROUP, TOPIC, self.questions, cluster.streams.stream(name))
            for name in ("answering 0", "answering 1")
        ]
        mains = [each.main for each in self._askers] + [each.main for each in self._answering]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.3", mains)
        self.clients, self.histories = self._askers, [self.questions]
        # Questions have numbers of their own, so they can be told apart in the log as well.
        stored = StoredMessages(cluster.hosts, (TOPIC,))
        self._selected = OnlySelectedBySql92(GROUP, TOPIC, is_wanted)
        content = MessageContentKept((TOPIC,), REQUEST_PROPERTIES)
        self.questions.listeners += [stored, content, Ordering(), self._selected]
        self.invariants = [stored, content, self._selected]

    def delivered(self) -> bool:
        """See :class:`Workload`."""
        ends = self._cluster.workload(Messages).stored.ends
        return all(
            self._selected.reaches(*queue, end) for queue, end in ends.items() if queue[0] == TOPIC
        )

    async def heal(self) -> None:
        """See :class:`Workload`."""
        cluster = self._cluster
        await cluster.until(
            lambda: all(each.answered_in_the_end for each in self._askers), "a request is answered"
        )
        await cluster.until(cluster.all_delivered, "every question is delivered")
        for client_host, client in zip(self.client_hosts[2:], self._answering, strict=True):
            if client_host.process is not None:
                client_host.process.run(client.close, client_host)
        await cluster.pass_time(3.0)
