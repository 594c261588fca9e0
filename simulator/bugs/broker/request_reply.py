"""Planted bugs F: requests and replies, and selection by SQL92."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from broker.client.producer.request_reply import PendingReplies, Reply
from broker.delivery.fetch import Delivery, Fetch
from broker.delivery.message_reader import GetMessageResult
from broker.filter.sql92_parser import Selector
from broker.remoting.connection import Connection
from broker.remoting.protocol.frame import Frame
from broker.state.state_machine import BrokerStateMachine
from simulator.bugs.planted_bug import BugsOf, Original, Patch
from simulator.worlds.registry import ASKING
from store.io.filesystem import Bytes

OFFSET_AT = slice(20, 28)
"""Where a record has its offset in the queue."""


bug = BugsOf(ASKING, seconds=8.0)


@bug("F1x", "does not select", 5)
def everything_selected(patch: Patch) -> None:
    """An expression selects every message."""
    patch.set(Selector, "matches", lambda _selector, _properties: True)


@bug("F2x", "was delivered to nobody", 5)
def bounds_not_selected(patch: Patch) -> None:
    """The upper bound of BETWEEN is not part of what it selects."""

    @patch.around(Selector, "matches")
    def within(matches: Original[bool], selector: Selector, properties: Mapping[str, str]) -> bool:
        return properties.get("side") != "2" and matches(selector, properties)


@bug("F3x", "is answered with", 40, "pause", "crash")
def reply_to_another_request(patch: Patch) -> None:
    """A client takes a reply for the answer to every open request."""

    @patch.instead(PendingReplies, "replied")
    def replied(asker: PendingReplies, connection: Connection, request: Frame) -> None:
        for waiting in asker._waiting.values():
            if not waiting.done():
                waiting.set_result(Reply(request.body, {}))
        connection.respond(request)


@bug("F4x", "is given another message", 10)
def record_of_an_earlier_pull(patch: Patch) -> None:
    """A selected message is returned with the bytes of the one selected before in that queue."""
    before: WeakKeyDictionary[BrokerStateMachine, dict[tuple[str, int], bytes]] = (
        WeakKeyDictionary()
    )

    @patch.around(Delivery, "_answer")
    def stale(
        answer: Original[None],
        delivery: Delivery,
        fetch: Fetch,
        found: GetMessageResult,
        parts: Sequence[Bytes] = (),
    ) -> None:
        if fetch.wanted.selector is not None and parts:
            kept = before.setdefault(delivery._machine, {})
            queue, first = (fetch.request.topic, fetch.request.queue_id), bytes(parts[0])
            given = bytearray(kept.get(queue, first))
            given[OFFSET_AT] = first[OFFSET_AT]
            kept[queue] = first
            parts = [given, *parts[1:]]
        answer(delivery, fetch, found, parts)
