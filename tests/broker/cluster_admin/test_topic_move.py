"""Moving a topic: each step is done once, also by a move that is started again anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from broker.cluster_admin.admin_client import AdminClient, NoTopicError, RefusedError, TopicRoute
from broker.cluster_admin.topic_move import TopicMove, Waiting
from broker.command_error import CommandError
from broker.remoting.protocol.codes import RequestCode, ResponseCode
from broker.remoting.protocol.frame import Frame

SOURCE = {
    "perm": 6,
    "order": False,
    "topicSysFlag": 0,
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "attributes": {"retention.ms": "3600000"},
}


class TwoGroups(AdminClient):
    """What the leaders of two broker groups would answer; notes what changes them."""

    def __init__(
        self,
        *,
        lag: int | None = 0,
        waiting: int = 0,
        unread: int = 0,
        earlier: bool = False,
        **topics: Mapping[str, Any],
    ) -> None:
        """``earlier``: they do not know of which topic messages are that wait."""
        self.topics: dict[str, dict[str, Any]] = {name: dict(each) for name, each in topics.items()}
        self.lag = lag
        self.waiting = {"messages": waiting, "unread": unread}
        self.earlier = earlier
        self.changes: list[str] = []

    async def route(self, topic: str) -> TopicRoute:
        if not self.topics:
            raise NoTopicError(topic)
        queues = {name: each["readQueueNums"] for name, each in self.topics.items()}
        return TopicRoute({name: name for name in self.topics}, queues)

    async def ask_namesrv(
        self, code: RequestCode, ext: Mapping[str, object] | None = None
    ) -> Frame:
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return answer({"brokerAddrTable": {at: {"brokerAddrs": {"0": at}} for at in "ab"}})
        brokers = [{"brokerName": name, "brokerAddrs": {"0": name}} for name in self.topics]
        return answer({"brokerDatas": brokers, "queueDatas": []})

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, object] | None = None,
        *_given: Any,
        **_named: Any,
    ) -> Frame:
        ext = ext or {}
        match code:
            case RequestCode.GET_TOPIC_CONFIG:
                if address not in self.topics:
                    raise RefusedError(address, ResponseCode.TOPIC_NOT_EXIST, "")
                return answer(self.topics[address])
            case RequestCode.UPDATE_AND_CREATE_TOPIC:
                self.changes.append(f"{address} perm {ext['perm']} {ext.get('attributes', '')}")
                self.topics[address] = {**SOURCE, **self.topics.get(address, {}), **ext}
                self.topics[address]["attributes"] = {}
            case RequestCode.DELETE_TOPIC_IN_BROKER:
                self.changes.append(f"{address} deleted")
                del self.topics[address]
            case RequestCode.QUERY_TOPIC_CONSUME_BY_WHO:
                return answer({"groupList": ["g"]})
            case RequestCode.GET_CONSUMER_GROUPS:
                topics = [{"topic": ext["topic"], "lag": self.lag}]
                return answer({"groups": [{"group": ext["group"], "topics": topics}]})
            case RequestCode.GET_BROKER_RUNTIME_INFO:
                told = {"raftNode": "n0", "undeliveredMessages": str(self.waiting["unread"])}
                return answer({"table": told})
            case RequestCode.GET_WAITING_OF_TOPIC:
                if self.earlier:
                    raise RefusedError(address, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "")
                return answer(self.waiting)
            case RequestCode.GET_MIN_OFFSET:
                return answer({}, offset="3")
            case RequestCode.GET_MAX_OFFSET:
                return answer({}, offset="10")
            case _:
                raise AssertionError(code)
        return answer({})


def answer(document: object, **ext: str) -> Frame:
    return Frame(0, 1, 1, ext=dict(ext), body=orjson.dumps(document))


async def moved(groups: TwoGroups, *, in_order: bool | None = None) -> list[str]:
    """The whole move; what it changed."""
    move = TopicMove("orders", "a", "b", in_order=in_order)
    await move.open_target(groups)
    await move.close_source(groups)
    assert (await move.remaining(groups)).drained
    await move.finish(groups)
    return groups.changes


async def test_the_target_has_the_topic_before_the_source_takes_no_more() -> None:
    groups = TwoGroups(a=SOURCE)
    assert await moved(groups) == [
        "b perm 6 +message.type=UNSPECIFIED,+retention.ms=3600000",
        "a perm 4 ",
        "a deleted",
    ]


@pytest.mark.parametrize("topic_says_so", [True, False])
async def test_in_order_the_target_takes_messages_last(topic_says_so: bool) -> None:
    groups = TwoGroups(a={**SOURCE, "order": topic_says_so})
    changes = await moved(groups, in_order=None if topic_says_so else True)
    assert [change.split("+")[0].strip() for change in changes] == [
        "b perm 4",
        "a perm 4",
        "b perm 6",
        "a deleted",
    ]


async def test_wherever_it_was_cut_off_it_does_what_is_left_once() -> None:
    assert await moved(TwoGroups(a=SOURCE, b=SOURCE)) == ["a perm 4 ", "a deleted"]
    assert await moved(TwoGroups(a={**SOURCE, "perm": 4}, b=SOURCE)) == ["a deleted"]
    closed = {**SOURCE, "perm": 4}
    assert await moved(TwoGroups(a=closed, b=closed), in_order=True) == ["b perm 6 ", "a deleted"]
    assert await moved(TwoGroups(b=SOURCE)) == []


async def test_a_move_ends_with_a_target_that_takes_messages_whatever_it_began_with() -> None:
    closed = {**SOURCE, "perm": 4}
    assert await moved(TwoGroups(a=closed, b=closed)) == ["b perm 6 ", "a deleted"]
    assert await moved(TwoGroups(b=closed)) == ["b perm 6 "]
    assert await moved(TwoGroups(a=closed)) == [
        "b perm 6 +message.type=UNSPECIFIED,+retention.ms=3600000",
        "a deleted",
    ]


@pytest.mark.parametrize(("source_perm", "lag"), [(6, 0), (4, 2)])
async def test_no_order_is_promised_where_the_target_took_messages_before_the_source_was_read(
    source_perm: int, lag: int
) -> None:
    groups = TwoGroups(a={**SOURCE, "perm": source_perm}, b=SOURCE, lag=lag)
    with pytest.raises(CommandError, match="b takes messages of orders already"):
        await TopicMove("orders", "a", "b", in_order=True).look(groups)
    await TopicMove("orders", "a", "b", in_order=False).look(groups)
    closed = TwoGroups(a=SOURCE, b={**SOURCE, "perm": 4}, lag=lag)
    await TopicMove("orders", "a", "b", in_order=True).look(closed)
    nearly_done = TwoGroups(a={**SOURCE, "perm": 4}, b=SOURCE)
    await TopicMove("orders", "a", "b", in_order=True).look(nearly_done)


async def test_it_is_drained_once_each_group_has_read_all_that_the_source_has() -> None:
    move = TopicMove("orders", "a", "b", in_order=None)
    remaining = await move.remaining(TwoGroups(a=SOURCE, b=SOURCE, lag=2))
    assert (remaining.messages, remaining.lags, remaining.drained) == (14, {"g": 2}, False)
    broadcast = await move.remaining(TwoGroups(a=SOURCE, lag=None))
    assert (broadcast.lags, broadcast.broadcast, broadcast.drained) == ({}, ("g",), True)


@pytest.mark.parametrize("earlier", [False, True])
async def test_what_waits_there_is_known_as_far_as_the_source_knows_it(earlier: bool) -> None:
    groups = TwoGroups(a=SOURCE, waiting=2, unread=5, earlier=earlier)
    move = TopicMove("orders", "a", "b", in_order=None)
    assert await move.waiting(groups) == Waiting(0 if earlier else 2, 5)
    assert await move.waiting(TwoGroups(b=SOURCE, waiting=2)) == Waiting(0, 0)


async def test_what_cannot_be_moved_is_said() -> None:
    with pytest.raises(CommandError, match="neither a nor b has orders"):
        await TopicMove("orders", "a", "b", in_order=None).places(TwoGroups())
    with pytest.raises(CommandError, match="from a to itself"):
        await TopicMove("orders", "a", "a", in_order=None).places(TwoGroups(a=SOURCE))
    with pytest.raises(CommandError, match="there is no group 'c'"):
        await TopicMove("orders", "a", "c", in_order=None).places(TwoGroups(a=SOURCE))
