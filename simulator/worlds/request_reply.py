"""A whole cluster with clients that ask, and others that answer a part of it: requests, SQL92.

A world of its own, so that the seeds of the others go on meaning what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.random_streams import CountingRandom
from simulator.hosts.client_host import ClientHost
from simulator.invariants import Invariant
from simulator.invariants.broker.message_content import MessageContentKept
from simulator.invariants.broker.message_order import Ordering
from simulator.invariants.broker.sql92_selection import OnlySelectedBySql92
from simulator.invariants.broker.stored_messages import StoredMessages
from simulator.workload.history import History
from simulator.workload.request_reply import PAUSE_MAX, ReplyingClient, RequestingClient, is_wanted
from simulator.worlds.broker_cluster import BrokerCluster

TOPIC = "questions"
GROUP = "experts"
REQUEST_PROPERTIES = ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER")
"""What clients and brokers add to a question, so that its answer finds back."""


class RequestReplyCluster(BrokerCluster):
    """See the module."""

    target_clients = (*BrokerCluster.target_clients, "q0", "q1", "a0", "a1")

    def _make_clients(self, rng: CountingRandom) -> None:
        super()._make_clients(rng)
        self.questions = History(self.trace.note)
        self._askers = [
            RequestingClient(
                self.name_servers,
                TOPIC,
                self.questions,
                self.streams.stream(name),
                pause_max=self.added_pauses * PAUSE_MAX,
            )
            for name in ("asking", "asking 1")
        ]
        self._answering = [
            ReplyingClient(
                self.name_servers,
                GROUP,
                TOPIC,
                self.questions,
                self.streams.stream(name),
            )
            for name in ("answering 0", "answering 1")
        ]
        mains = [
            *((f"q{place}", each.main) for place, each in enumerate(self._askers)),
            *((f"a{place}", each.main) for place, each in enumerate(self._answering)),
        ]
        self.clients += [
            ClientHost(name, f"10.0.3.{place}", self.environment, main, self._client_ended)
            for place, (name, main) in enumerate(mains, 1)
        ]

    def _make_invariants(self) -> Sequence[Invariant]:
        # Questions have numbers of their own, so what is stored of them is told apart as well.
        stored = StoredMessages(self.hosts, (TOPIC,))
        self.selected = OnlySelectedBySql92(GROUP, TOPIC, is_wanted)
        content = MessageContentKept((TOPIC,), REQUEST_PROPERTIES)
        self.questions.listeners += [stored, content, Ordering(), self.selected]
        return [*super()._make_invariants(), stored, content, self.selected]

    def _client_ended(self, client_host: ClientHost) -> None:
        super()._client_ended(client_host)
        self.questions.client_ended(client_host.name)

    def _stop_clients(self) -> None:
        super()._stop_clients()
        for asker in self._askers:
            asker.stop()

    async def _heal_clients(self) -> None:
        await super()._heal_clients()
        await self.until(
            lambda: all(each.answered_in_the_end for each in self._askers), "a request is answered"
        )
        await self.until(self._all_delivered, "every question is delivered")
        for client_host, client in zip(self.clients[-2:], self._answering, strict=True):
            if client_host.process is not None:
                client_host.process.run(client.close, client_host)
        await self.pass_time(3.0)

    def _open_calls(self) -> int:
        return super()._open_calls() + len(self.questions.open)

    def _all_delivered(self) -> bool:
        ends = self.stored.ends
        return super()._all_delivered() and all(
            self.selected.reaches(*queue, end) for queue, end in ends.items() if queue[0] == TOPIC
        )
